"""How far the engine that sampled is from the learner that scores, and weights that make up for it."""

from __future__ import annotations

from typing import Literal

import torch
from torch import Tensor

from lookact.errors import TokenMismatch
from lookact.ops.kl import bounded_ratio, k1, k3
from lookact.ops.masked import Metrics, masked_max, masked_mean, zero_outside

Level = Literal["token", "sequence", "geometric"]
"""What a ratio is of: a unit; a row's product of units; or its geometric mean, which does not grow with length."""


@torch.no_grad()
def importance_weights(
    logprobs: Tensor,
    behaviour_logprobs: Tensor,
    mask: Tensor,
    *,
    cap: float,
    low: float = 0.0,
    level: Level = "token",
    masked: bool = False,
) -> tuple[Tensor, Metrics]:
    """Weights p_learner / p_behaviour (b, u), constants, 0 outside the mask: truncated, or masked, importance sampling.

    Truncated (TIS): ratios above `cap` count as `cap`. `masked` (MIS): units, or rows, whose ratio is outside
    [low, cap] count nothing. Ratios are those of `level`; a row's ratio stands on each of its units.
    The metrics measure the raw gap Δ = log p_learner − log p_behaviour, before any truncation: its mean and
    largest size, KL(behaviour ‖ learner) by k1 and k3, and the share of counted units that were cut.
    """
    if cap <= 0 or not 0 <= low < cap:
        raise ValueError(f"bounds [{low}, {cap}]: low must be at least 0 and cap above it")
    learner = zero_outside(logprobs, mask)
    behaviour = zero_outside(behaviour_logprobs, mask)
    gap = learner - behaviour
    sizes = gap.abs()
    ratio = bounded_ratio(_at_level(gap, mask, level), torch.zeros_like(gap))
    outside = (ratio > cap) | (ratio < low) if masked else ratio > cap
    metrics = {
        "gap_mean": masked_mean(sizes, mask),
        "gap_max": masked_max(sizes, mask),
        "kl_k1": masked_mean(k1(behaviour, learner), mask),
        "kl_k3": masked_mean(k3(behaviour, learner), mask),
        "truncated": masked_mean(outside.to(ratio.dtype), mask),
    }
    weights = ratio.masked_fill(outside, 0.0) if masked else ratio.clamp(max=cap)
    return zero_outside(weights, mask), metrics


def truncated_importance(
    logprobs: Tensor, behaviour_logprobs: Tensor, mask: Tensor, *, cap: float
) -> tuple[Tensor, Metrics]:
    """`importance_weights` of single units, truncated at `cap`."""
    return importance_weights(logprobs, behaviour_logprobs, mask, cap=cap)


def _at_level(gap: Tensor, mask: Tensor, level: Level) -> Tensor:
    """(b, u) the log-ratio of what `level` names, on each unit."""
    if level == "token":
        return gap
    total = gap.sum(dim=1, keepdim=True)
    if level == "geometric":
        total = total / mask.sum(dim=1, keepdim=True).clamp(min=1)
    return total.expand_as(gap)


@torch.no_grad()
def logprob_gap(logprobs: Tensor, sampled: Tensor, mask: Tensor, *, limit: float) -> Tensor:
    """The largest difference between log-probs (b, u) as scored and as sampled; above `limit` nats it raises."""
    # a score that is not a number is no disagreement: the step is skipped, and counted, as one that is not finite
    gap = masked_max((logprobs - sampled).abs(), mask & ~logprobs.isnan())
    check_mismatch(float(gap), limit)
    return gap


def check_mismatch(gap: float, limit: float) -> None:
    """Raises where log-probs as sampled and as scored differ by more nats than rounding explains."""
    if not gap <= limit:
        raise TokenMismatch(
            f"engine and learner disagree by {gap:.4f} nats: tokenizer, template or weights differ; "
            "learn.max_logprob_gap is the limit"
        )
