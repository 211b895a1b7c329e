"""What an explorer is paid for: to move a world model's memory, and to go where the world model is unsure.

Each part is paid in units of what random actions earn, so that the weights mean the same in every world. Uncertainty by
entropy can be had for nothing in front of noise; by disagreement between members it can't, once they have all learned
that there is nothing to foresee.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Literal

import torch
from torch import Tensor

from lookact.ops.curiosity import ensemble_disagreement, memory_divergence, token_uncertainty

Kind = Literal["entropy", "disagreement"]


@dataclass(frozen=True)
class Parts:
    """What n steps earn, (n,) each, before units and weights."""

    divergence: Tensor
    uncertainty: Tensor


@torch.no_grad()
def curiosity(before: Tensor, after: Tensor, logits: Tensor, foreseen: Tensor, *, kind: Kind) -> Parts:
    """Parts of n steps from memory (n, h) before and after them, and from what they were thought to lead to.

    logits: (members, n, l, v) of the next frame's tokens; foreseen: (members, n, d) what each member expects to be seen.
    """
    if kind == "disagreement":
        uncertainty = ensemble_disagreement(foreseen)
    else:
        # the logarithm of a distribution is logits of it
        uncertainty = token_uncertainty(logits.softmax(dim=-1).mean(dim=0).clamp(min=1e-12).log())
    return Parts(memory_divergence(before[None], after[None]), uncertainty)


class Units:
    """What random actions earn of each part: 1 until it was measured."""

    def __init__(self) -> None:
        self.divergence, self.uncertainty = 1.0, 1.0

    def measure(self, parts: Parts, counts: Tensor) -> None:
        """Take the means over the steps (n,) that count."""
        self.divergence = max(1e-6, float(parts.divergence[counts].mean()))
        self.uncertainty = max(1e-6, float(parts.uncertainty[counts].mean()))

    def pay(self, parts: Parts, *, divergence: float, uncertainty: float) -> tuple[Tensor, Tensor]:
        """The weighted rewards (n,) for memory's divergence and for uncertainty; the reward is their sum."""
        return (
            divergence * parts.divergence / self.divergence,
            uncertainty * parts.uncertainty / self.uncertainty,
        )

    def state_dict(self) -> dict[str, Any]:
        return {"divergence": self.divergence, "uncertainty": self.uncertainty}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        self.divergence, self.uncertainty = state["divergence"], state["uncertainty"]
