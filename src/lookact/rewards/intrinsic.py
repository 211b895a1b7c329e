"""Intrinsic rewards of an explorer: memory divergence, world-model uncertainty, and k-NN novelty.

Each is divided by its mean size under random actions, so that the weights mean the same in every environment.
Uncertainty by entropy or by surprise (NLL) is exploited by noise (the noisy-TV problem). Ensemble disagreement
(arXiv:1906.04161) is not, once all members predict the same mean; learning progress (γ-Progress, arXiv:2007.07853) is
not, because no model has made any on noise.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Literal

import torch
from torch import Tensor

from lookact.errors import ConfigError
from lookact.ops.curiosity import ensemble_disagreement, knn_entropy_reward, memory_divergence, token_uncertainty
from lookact.ops.logprobs import gather_logprobs

UncertaintyKind = Literal["entropy", "surprise", "disagreement", "learning_progress"]
NEIGHBOURS = 12
"""k of the k-NN novelty."""


@dataclass(frozen=True)
class IntrinsicRewards:
    """Reward terms of n steps, (n,) each, before scales and weights."""

    divergence: Tensor
    uncertainty: Tensor
    novelty: Tensor


@torch.no_grad()
def intrinsic_rewards(before: Tensor, after: Tensor, positions: Tensor, uncertainty: Tensor) -> IntrinsicRewards:
    """Terms of n steps from memory (n, h) before and after them, tool positions (n, p) and uncertainty (n,)."""
    # each position is its own nearest neighbour
    novelty = knn_entropy_reward(positions, positions, NEIGHBOURS + 1)
    return IntrinsicRewards(memory_divergence(before[None], after[None]), uncertainty, novelty)


@torch.no_grad()
def uncertainty(
    logits: Tensor, expected: Tensor, ids: Tensor, *, kind: UncertaintyKind, older: Tensor | None = None
) -> Tensor:
    """World-model uncertainty (n,) about the next frame.

    logits: (members, n, l, v) of its tokens; expected: (members, n, d) each member's expected features; ids: (n, l) its
    true tokens; older: an older world model's logits, for learning progress, which is what the surprise fell by since.
    """
    if kind == "disagreement":
        return ensemble_disagreement(expected)
    if kind == "learning_progress":
        if older is None:
            raise ConfigError("learning progress is measured against an older world model: give its logits")
        return surprise(older, ids) - surprise(logits, ids)
    return token_uncertainty(_mean_logprobs(logits)) if kind == "entropy" else surprise(logits, ids)


def surprise(logits: Tensor, ids: Tensor) -> Tensor:
    """NLL (n,) in nats a token of ids (n, l) under the mean of the members' predictions (members, n, l, v)."""
    return -gather_logprobs(_mean_logprobs(logits), ids).mean(dim=-1)


def _mean_logprobs(logits: Tensor) -> Tensor:
    # log-probabilities are logits
    return logits.softmax(dim=-1).mean(dim=0).clamp(min=1e-12).log()


class RewardScale:
    """Each term's mean size under random actions, by which it is divided; 1 until fitted."""

    def __init__(self) -> None:
        self.divergence, self.uncertainty, self.novelty = 1.0, 1.0, 1.0
        self.random_uncertainty = 1.0
        """What random actions earn by the scaled uncertainty: less than 1 where it may be negative."""

    def fit(self, rewards: IntrinsicRewards, mask: Tensor) -> None:
        """Set the scales to the mean sizes over mask; learning progress alone may be negative."""
        self.divergence, self.uncertainty, self.novelty = (
            max(1e-6, float(term[mask].abs().mean()))
            for term in (rewards.divergence, rewards.uncertainty, rewards.novelty)
        )
        self.random_uncertainty = float(rewards.uncertainty[mask].mean()) / self.uncertainty

    def random_reward(self, weights: tuple[float, float, float]) -> float:
        """What random actions earn a step by these weights."""
        return weights[0] + weights[1] * self.random_uncertainty + weights[2]

    def weighted(self, rewards: IntrinsicRewards, weights: tuple[float, float, float]) -> IntrinsicRewards:
        """Scaled terms times the weights of divergence, uncertainty and novelty; the reward is their sum."""
        return IntrinsicRewards(
            weights[0] * rewards.divergence / self.divergence,
            weights[1] * rewards.uncertainty / self.uncertainty,
            weights[2] * rewards.novelty / self.novelty,
        )

    def state_dict(self) -> dict[str, Any]:
        return dict(vars(self))

    def load_state_dict(self, state: dict[str, Any]) -> None:
        self.__dict__.update(state)
