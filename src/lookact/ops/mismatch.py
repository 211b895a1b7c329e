"""How far the engine that sampled is from the learner that scores, and weights that make up for it."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal

import torch
from torch import Tensor

from lookact.errors import TokenMismatch
from lookact.ops.losses import bounded_ratio, k1, k3
from lookact.ops.masked import Metrics, masked_max, masked_mean, masked_sum, zero_outside

Level = Literal["none", "token", "sequence", "geometric"]
"""What a ratio is of: a unit; a row's product of units; or its geometric mean, which does not grow with length."""
TAIL = 1e-3
"""Share of the tokens that may be outliers: the limit of a token is one of the 99.9% quantile."""


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
    [low, cap] count nothing. Ratios are those of `level`; a row's ratio stands on each of its units. Level none weighs
    every unit 1.
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
    if level == "none":
        ratio, outside = torch.ones_like(gap), torch.zeros_like(mask)
    metrics = {
        "gap_mean": masked_mean(sizes, mask),
        "gap_max": masked_max(sizes, mask),
        "kl_k1": masked_mean(k1(behaviour, learner), mask),
        "kl_k3": masked_mean(k3(behaviour, learner), mask),
        "truncated": masked_mean(outside.to(ratio.dtype), mask),
    }
    weights = ratio.masked_fill(outside, 0.0 if masked else cap)
    return zero_outside(weights, mask), metrics


def truncated_importance(
    logprobs: Tensor, behaviour_logprobs: Tensor, mask: Tensor, *, cap: float
) -> tuple[Tensor, Metrics]:
    """`importance_weights` of single units, truncated at `cap`."""
    return importance_weights(logprobs, behaviour_logprobs, mask, cap=cap)


def _at_level(gap: Tensor, mask: Tensor, level: Level) -> Tensor:
    """(b, u) the log-ratio of what `level` names, on each unit."""
    if level in ("none", "token"):
        return gap
    total = gap.sum(dim=1, keepdim=True)
    if level == "geometric":
        total = total / mask.sum(dim=1, keepdim=True).clamp(min=1)
    return total.expand_as(gap)


@dataclass(frozen=True)
class MismatchLimits:
    """Nats by which log-probs as sampled and as scored may differ."""

    token: float
    """Tokens further apart are left out of the loss; more than `TAIL` of them are no rounding."""
    mean: float
    """Over all tokens."""


def mismatch_limits(dtype: str, *, token: float | None = None, mean: float | None = None) -> MismatchLimits:
    """The limits of a precision, each unless it is given: a maximum over tokens says little in bfloat16."""
    usual = LIMITS[dtype]
    return MismatchLimits(usual.token if token is None else token, usual.mean if mean is None else mean)


class MismatchGate:
    """Gathers how far sampler and learner are apart over a step's micro-batches, and judges them as a whole."""

    def __init__(self, limits: MismatchLimits) -> None:
        self.limits = limits
        self.tokens = self.total = self.outliers = self.largest = 0.0

    @torch.no_grad()
    def agree(self, logprobs: Tensor, sampled: Tensor, mask: Tensor) -> Tensor:
        """(b, u) False on outliers: units of the mask whose log-probs as scored and as sampled are too far apart."""
        # a score that is not a number is no disagreement: the step is skipped, and counted, as one that is not finite
        known = mask & ~logprobs.isnan()
        gaps = (logprobs - sampled).abs()
        outliers = known & ~(gaps <= self.limits.token)
        self.tokens += float(known.sum())
        self.total += float(masked_sum(gaps, known))
        self.outliers += float(outliers.sum())
        self.largest = max(self.largest, float(masked_max(gaps, known)))
        return ~outliers

    def judge(self, sum_everywhere: Callable[[float], float] = float) -> dict[str, float]:
        """The largest and the mean gap and the share of outliers; raises where they are more than rounding explains."""
        tokens = max(1.0, sum_everywhere(self.tokens))
        mean, share = sum_everywhere(self.total) / tokens, sum_everywhere(self.outliers) / tokens
        if not (mean <= self.limits.mean and share <= TAIL):
            raise TokenMismatch(
                f"engine and learner disagree by {mean:.3g} nats a token, and {share:.2%} of the tokens by more than "
                f"{self.limits.token:g}: tokenizer, template or weights differ; learn.max_mean_logprob_gap and "
                "learn.max_logprob_gap are the limits"
            )
        told = {"gap_max": self.largest, "gap_mean": mean, "outliers": share}
        return {f"policy/mismatch_{name}": value for name, value in told.items()}


LIMITS = {"float32": MismatchLimits(1e-3, 1e-4), "bfloat16": MismatchLimits(0.5, 0.05)}
"""Two kernels of one model in float32 differ by 1e-5; in bfloat16 a few tokens differ by tenths of a nat."""
ANYTHING = MismatchLimits(math.inf, math.inf)
"""Of log-probs that rightly differ: after an update, or of stale weights."""
