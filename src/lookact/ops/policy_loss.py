"""Policy-gradient losses over units: minimise them. Advantages, old log-probabilities and weights are constants.

`count` is explained in `masked_mean`; `weights` (b, u) multiply each unit, as `truncated_importance` gives them.
"""

from __future__ import annotations

import torch
from torch import Tensor

from lookact.ops.kl import bounded_ratio, k3
from lookact.ops.masked import Metrics, masked_mean, masked_means, mean_of_kept, zero_outside


def reinforce(
    logprobs: Tensor,
    advantages: Tensor,
    mask: Tensor,
    *,
    weights: Tensor | None = None,
    count: float | Tensor | None = None,
) -> tuple[Tensor, Metrics]:
    """−A·log p, averaged over the mask. logprobs, mask: (b, u); advantages: (b, u), or (b, 1) for one an episode."""
    kept = zero_outside(logprobs, mask)
    scale = _constants(advantages, weights, mask)
    metrics = masked_means(mask, logprob=kept, advantage=zero_outside(advantages, mask))
    return -mean_of_kept(scale * kept, mask, count=count), metrics


def ppo_clip(
    logprobs: Tensor,
    old_logprobs: Tensor,
    advantages: Tensor,
    mask: Tensor,
    *,
    clip: float,
    clip_high: float | None = None,
    dual_clip: float | None = None,
    weights: Tensor | None = None,
    count: float | Tensor | None = None,
) -> tuple[Tensor, Metrics]:
    """−min(ρA, clip(ρ, 1−clip, 1+clip_high)·A) over the mask, ρ = p/p_old (arXiv:1707.06347, eq. 7).

    logprobs, old_logprobs, mask: (b, u); advantages: (b, u) or (b, 1). `clip_high` (clip if None) loosens the
    upper side only (arXiv:2503.14476). `dual_clip` > 1 keeps the objective above dual_clip·A where A < 0
    (arXiv:1912.09729), so that one runaway ratio can't rule the batch.
    """
    if dual_clip is not None and dual_clip <= 1:
        raise ValueError(f"dual_clip is {dual_clip}: it must be above 1")
    kept = zero_outside(logprobs, mask)
    old = zero_outside(old_logprobs, mask).detach()
    scale = _constants(advantages, weights, mask)
    ratio = bounded_ratio(kept, old)
    free = ratio * scale
    clipped = ratio.clamp(1.0 - clip, 1.0 + (clip if clip_high is None else clip_high)) * scale
    objective = torch.minimum(free, clipped)
    if dual_clip is not None:
        objective = torch.where(scale < 0, torch.maximum(objective, dual_clip * scale), objective)
    with torch.no_grad():
        stopped = (clipped < free).to(ratio.dtype)
        metrics = masked_means(mask, ratio=ratio, clip_fraction=stopped, approx_kl=k3(old, kept))
    return -mean_of_kept(objective, mask, count=count), metrics


def entropy_bonus(entropy: Tensor, mask: Tensor, *, count: float | Tensor | None = None) -> Tensor:
    """Mean entropy over the mask (b, u): subtract it from the loss, times a coefficient."""
    return masked_mean(entropy, mask, count=count)


def _constants(advantages: Tensor, weights: Tensor | None, mask: Tensor) -> Tensor:
    """(b, u) what multiplies each unit: its advantage times its weight, without gradient."""
    scale = zero_outside(advantages, mask).detach()
    return scale if weights is None else scale * zero_outside(weights, mask).detach()
