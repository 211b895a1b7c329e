"""Policy-gradient losses over units: minimise them. Advantages, old log-probabilities and weights are constants.

`count` is explained in `masked_mean`; `weights` (b, u) multiply each unit, as `truncated_importance` gives them.
"""

from __future__ import annotations

from typing import Literal

import torch
from torch import Tensor

from lookact.ops.kl import MAX_LOG_RATIO, bounded_ratio, k3
from lookact.ops.masked import Metrics, masked_mean, masked_means, mean_of_kept, units_of, zero_outside

Aggregation = Literal["token", "sequence", "constant"]


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


def gspo(
    logprobs: Tensor,
    old_logprobs: Tensor,
    advantages: Tensor,
    mask: Tensor,
    *,
    clip: float,
    clip_high: float | None = None,
    weights: Tensor | None = None,
    count: float | Tensor | None = None,
) -> tuple[Tensor, Metrics]:
    """PPO's clip on the sequence's ratio s = exp(mean of log p − log p_old over the row) (arXiv:2507.18071, eq. 13).

    The token form: each unit has value s and the gradient of its own log-probability, so that turns of one row may have
    advantages of their own; with one advantage a row, and `sequence` aggregation, it is GSPO's eq. 5. s is a
    geometric mean and stays close to 1: clips are a hundred times smaller than PPO's (3e-4).
    """
    kept = zero_outside(logprobs, mask)
    old = zero_outside(old_logprobs, mask).detach()
    scale = _constants(advantages, weights, mask)
    mean_gap = (kept - old).detach().sum(dim=1, keepdim=True) / mask.sum(dim=1, keepdim=True).clamp(min=1)
    ratio = zero_outside(mean_gap.clamp(-MAX_LOG_RATIO, MAX_LOG_RATIO).exp(), mask) * (kept - kept.detach()).exp()
    free = ratio * scale
    clipped = ratio.clamp(1.0 - clip, 1.0 + (clip if clip_high is None else clip_high)) * scale
    with torch.no_grad():
        stopped = (clipped < free).to(ratio.dtype)
        metrics = masked_means(mask, ratio=ratio, clip_fraction=stopped, approx_kl=k3(old, kept))
    return -mean_of_kept(torch.minimum(free, clipped), mask, count=count), metrics


def cispo(
    logprobs: Tensor,
    old_logprobs: Tensor,
    advantages: Tensor,
    mask: Tensor,
    *,
    clip: float,
    clip_high: float | None = None,
    weights: Tensor | None = None,
    count: float | Tensor | None = None,
) -> tuple[Tensor, Metrics]:
    """−clip(ρ, 1−clip, 1+clip_high)·A·log p: REINFORCE weighted by the clipped ratio, a constant (arXiv:2506.13585).

    PPO drops the gradient of a clipped unit; here every unit keeps one, and only its weight is bounded.
    """
    kept = zero_outside(logprobs, mask)
    old = zero_outside(old_logprobs, mask).detach()
    scale = _constants(advantages, weights, mask)
    with torch.no_grad():
        ratio = bounded_ratio(kept, old)
        bounded = ratio.clamp(1.0 - clip, 1.0 + (clip if clip_high is None else clip_high))
        metrics = masked_means(
            mask, ratio=ratio, clip_fraction=(bounded != ratio).to(ratio.dtype), approx_kl=k3(old, kept)
        )
    return -mean_of_kept(bounded * scale * kept, mask, count=count), metrics


@torch.no_grad()
def aggregation_weights(mask: Tensor, how: Aggregation, *, horizon: int | None = None) -> Tensor:
    """What each unit of mask (b, u) weighs, 0 outside it, so that the mean over units becomes another mean of the loss.

    token: every unit alike, long episodes count more. sequence: every row alike (GRPO, arXiv:2402.03300, eq. 3).
    constant: the row's sum over `horizon`, the longest a row can be, whatever its length (Dr. GRPO, arXiv:2503.20783).
    Give the mask of the whole batch, and the weights to a loss with `count` = its number of counted units.
    """
    units = mask.sum(dim=1, keepdim=True)
    rows = (units > 0).sum().clamp(min=1)
    if how == "token":
        return mask.float()
    if how == "sequence":
        return mask * (units_of(mask) / (rows * units.clamp(min=1)))
    if horizon is None or horizon < 1:
        raise ValueError(f"constant aggregation needs a horizon of at least 1, found {horizon}")
    return mask * (units_of(mask) / (rows * horizon))


def entropy_bonus(entropy: Tensor, mask: Tensor, *, count: float | Tensor | None = None) -> Tensor:
    """Mean entropy over the mask (b, u): subtract it from the loss, times a coefficient."""
    return masked_mean(entropy, mask, count=count)


def _constants(advantages: Tensor, weights: Tensor | None, mask: Tensor) -> Tensor:
    """(b, u) what multiplies each unit: its advantage times its weight, without gradient."""
    scale = zero_outside(advantages, mask).detach()
    return scale if weights is None else scale * zero_outside(weights, mask).detach()
