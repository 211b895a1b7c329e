"""How far the engine that sampled is from the learner that scores, and weights that make up for it."""

from __future__ import annotations

import torch
from torch import Tensor

from lookact.ops.kl import bounded_ratio, k1, k3
from lookact.ops.masked import Metrics, masked_max, masked_mean, zero_outside


@torch.no_grad()
def truncated_importance(
    logprobs: Tensor, behaviour_logprobs: Tensor, mask: Tensor, *, cap: float
) -> tuple[Tensor, Metrics]:
    """Weights min(p_learner / p_behaviour, cap) (b, u), constants, 0 outside the mask.

    The metrics measure the raw gap Δ = log p_learner − log p_behaviour, before any truncation: its mean and
    largest size, KL(behaviour ‖ learner) by k1 and k3, and the share of counted units that the cap cut.
    """
    if cap <= 0:
        raise ValueError(f"cap is {cap}: it must be above 0")
    learner = zero_outside(logprobs, mask)
    behaviour = zero_outside(behaviour_logprobs, mask)
    gap = (learner - behaviour).abs()
    ratio = bounded_ratio(learner, behaviour)
    metrics = {
        "gap_mean": masked_mean(gap, mask),
        "gap_max": masked_max(gap, mask),
        "kl_k1": masked_mean(k1(behaviour, learner), mask),
        "kl_k3": masked_mean(k3(behaviour, learner), mask),
        "truncated": masked_mean((ratio > cap).to(ratio.dtype), mask),
    }
    return zero_outside(ratio.clamp(max=cap), mask), metrics
