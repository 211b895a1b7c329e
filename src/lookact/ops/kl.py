"""Estimators of KL(policy ‖ reference) from sampled units, and a coefficient that follows a target.

With d = log p_ref − log p on units that the policy sampled (Schulman, "Approximating KL divergence", 2020):

    k1 = −d          unbiased, of either sign; its gradient as a loss is 0 on average: use it to shape rewards
    k2 = d²/2        biased, never negative; as a loss its gradient IS that of the KL
    k3 = e^d − 1 − d unbiased, never negative, calmer than k1; as a loss its gradient is that of KL(ref ‖ policy)

k3 stands still beyond d = 20 nats, where e^d would drown every other unit or overflow.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

from torch import Tensor

from lookact.ops.masked import Metrics, masked_mean, zero_outside

MAX_LOG_RATIO = 20.0


def k1(logprobs: Tensor, ref_logprobs: Tensor) -> Tensor:
    """log p − log p_ref, unit by unit."""
    return logprobs - ref_logprobs


def k2(logprobs: Tensor, ref_logprobs: Tensor) -> Tensor:
    """Half the squared log-ratio, unit by unit."""
    return 0.5 * (logprobs - ref_logprobs).square()


def k3(logprobs: Tensor, ref_logprobs: Tensor) -> Tensor:
    """e^d − 1 − d with d = log p_ref − log p, unit by unit."""
    gap = (ref_logprobs - logprobs).clamp(max=MAX_LOG_RATIO)
    return gap.expm1() - gap


def bounded_ratio(logprobs: Tensor, old_logprobs: Tensor) -> Tensor:
    """p / p_old, unit by unit, with its logarithm held within ±20 so that it stays finite."""
    return (logprobs - old_logprobs).clamp(-MAX_LOG_RATIO, MAX_LOG_RATIO).exp()


def kl_loss(
    logprobs: Tensor,
    ref_logprobs: Tensor,
    mask: Tensor,
    *,
    estimator: Callable[[Tensor, Tensor], Tensor] = k3,
    count: float | Tensor | None = None,
) -> tuple[Tensor, Metrics]:
    """Mean of an estimator over the mask (b, u); k2 or k3, since the gradient of k1 is only noise."""
    kept = zero_outside(logprobs, mask)
    kept_ref = zero_outside(ref_logprobs, mask).detach()
    divergence = estimator(kept, kept_ref)
    metrics = {
        "kl": masked_mean(divergence.detach(), mask),
        "kl_k1": masked_mean(k1(kept, kept_ref).detach(), mask),
    }
    return masked_mean(divergence, mask, count=count), metrics


class AdaptiveKL:
    """A KL coefficient that grows while the KL is above its target and shrinks below it (arXiv:1909.08593, eq. 5)."""

    def __init__(self, coef: float, target: float, horizon: int) -> None:
        if coef < 0 or target <= 0 or horizon <= 0:
            raise ValueError(
                f"coef {coef}, target {target}, horizon {horizon}: coef may be 0, the others must be above"
            )
        self.coef = coef
        self.target = target
        self.horizon = horizon

    def update(self, kl: float, n: int) -> float:
        """coef *= 1 + clip(kl/target − 1, ±0.2)·n/horizon after n units (or episodes, as horizon counts them)."""
        if not math.isfinite(kl):
            raise ValueError(f"the KL is {kl}: the coefficient can't follow it; look for broken log-probabilities")
        error = min(max(kl / self.target - 1.0, -0.2), 0.2)
        factor = 1.0 + error * n / self.horizon
        if factor <= 0:
            raise ValueError(f"{n} units on a horizon of {self.horizon} turn the coefficient negative: lengthen it")
        self.coef *= factor
        return self.coef

    def state_dict(self) -> dict[str, Any]:
        return {"coef": self.coef}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        self.coef = float(state["coef"])
