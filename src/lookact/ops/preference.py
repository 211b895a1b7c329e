"""Learning a reward from comparisons, and choosing what to compare next.

P(second is better) = σ(r_second − r_first) (Bradley and Terry, 1952; arXiv:1706.03741, eq. 1).
"""

from __future__ import annotations

import torch
from torch import Tensor
from torch.nn import functional

from lookact.ops.masked import Metrics


def bradley_terry(r_first: Tensor, r_second: Tensor, labels: Tensor) -> tuple[Tensor, Metrics]:
    """Mean cross-entropy of the preferences; label 0: the first is better, 1: the second, between: how sure.

    r_first, r_second: (..., n), with a leading axis for an ensemble; labels: (n,) or the same shape. Verdict -1
    (no preference) is no label and raises. Accuracy leaves labels of one half out; equal rewards miss.
    """
    if not ((labels >= 0) & (labels <= 1)).all():
        raise ValueError(
            f"labels span {labels.min()} to {labels.max()}: drop pairs with no verdict (-1) before training"
        )
    gaps = r_second - r_first
    sides = labels.to(gaps.dtype).expand_as(gaps)
    loss = functional.binary_cross_entropy_with_logits(gaps, sides)
    with torch.no_grad():
        decided = sides != 0.5
        right = gaps * (sides - 0.5) > 0
        metrics = {"accuracy": right.sum() / decided.sum().clamp(min=1), "reward_gap": gaps.abs().mean()}
    return loss, metrics


@torch.no_grad()
def disagreement(probabilities: Tensor) -> Tensor:
    """Deviation (n,) between the members' P(second is better), (members, n); 0 for one member."""
    return probabilities.std(dim=0, correction=0)


@torch.no_grad()
def pair_entropy(probabilities: Tensor) -> Tensor:
    """Mean over members of the entropy (n,) in nats of their P(second is better), (members, n)."""
    other = 1.0 - probabilities
    return -(torch.xlogy(probabilities, probabilities) + torch.xlogy(other, other)).mean(dim=0)
