"""What an explorer is paid for: to move a world model's memory, to go where it is unsure, and where few have been.

Each part is paid in units of what random actions earn, so that the weights mean the same in every world. Uncertainty by
entropy, or by the surprise at what came, can be had for nothing in front of noise; by disagreement between members it
can't, once they have all learned that there is nothing to foresee.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Literal

import torch
from torch import Tensor

from lookact.ops.curiosity import ensemble_disagreement, knn_entropy_reward, memory_divergence, token_uncertainty
from lookact.ops.logprobs import gather_logprobs

Kind = Literal["entropy", "surprise", "disagreement"]
NEIGHBOUR = 12
"""Whose distance says how alone a place is."""


@dataclass(frozen=True)
class Parts:
    """What n steps earn, (n,) each, before units and weights."""

    divergence: Tensor
    uncertainty: Tensor
    novelty: Tensor


@torch.no_grad()
def curiosity(before: Tensor, after: Tensor, places: Tensor, uncertainty: Tensor) -> Parts:
    """Parts of n steps from memory (n, h) before and after them, where they led (n, p), and the uncertainty (n,)."""
    # each place is its own nearest
    novelty = knn_entropy_reward(places, places, NEIGHBOUR + 1)
    return Parts(memory_divergence(before[None], after[None]), uncertainty, novelty)


@torch.no_grad()
def uncertainty_of(logits: Tensor, foreseen: Tensor, came: Tensor, *, kind: Kind) -> Tensor:
    """How unsure a world model was (n,) of where n steps would lead, or how wrong.

    logits: (members, n, l, v) of the next frame's tokens; foreseen: (members, n, d) what each member expects to see;
    came: (n, l) the tokens that it turned out to be.
    """
    if kind == "disagreement":
        return ensemble_disagreement(foreseen)
    # the logarithm of a distribution is logits of it
    mean = logits.softmax(dim=-1).mean(dim=0).clamp(min=1e-12).log()
    if kind == "entropy":
        return token_uncertainty(mean)
    return -gather_logprobs(mean, came).mean(dim=-1)


class Units:
    """What random actions earn of each part: 1 until it was measured."""

    def __init__(self) -> None:
        self.divergence, self.uncertainty, self.novelty = 1.0, 1.0, 1.0

    def measure(self, parts: Parts, counts: Tensor) -> None:
        """Take the means over the steps (n,) that count."""
        self.divergence, self.uncertainty, self.novelty = (
            max(1e-6, float(part[counts].mean())) for part in (parts.divergence, parts.uncertainty, parts.novelty)
        )

    def pay(
        self, parts: Parts, *, divergence: float, uncertainty: float, novelty: float
    ) -> tuple[Tensor, Tensor, Tensor]:
        """The weighted rewards (n,) of memory's divergence, of uncertainty and of novelty; the reward is their sum."""
        return (
            divergence * parts.divergence / self.divergence,
            uncertainty * parts.uncertainty / self.uncertainty,
            novelty * parts.novelty / self.novelty,
        )

    def state_dict(self) -> dict[str, Any]:
        return {"divergence": self.divergence, "uncertainty": self.uncertainty, "novelty": self.novelty}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        self.divergence, self.uncertainty = state["divergence"], state["uncertainty"]
        self.novelty = state["novelty"]
