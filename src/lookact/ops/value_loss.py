"""Losses of a value function over units: minimise them.

Targets are constants; `count` is explained in `masked_mean`.
"""

from __future__ import annotations

import torch
from torch import Tensor
from torch.nn import functional

from lookact.ops.masked import Metrics, masked_means, masked_variance, mean_of_kept, zero_outside


def clipped_value_loss(
    values: Tensor,
    old_values: Tensor,
    returns: Tensor,
    mask: Tensor,
    *,
    clip: float,
    count: float | Tensor | None = None,
) -> tuple[Tensor, Metrics]:
    """½·max((V−R)², (V_clip−R)²) over the mask (b, u), V_clip within ±clip of the old value.

    A value that has already moved by `clip` towards its target gets no further gradient.
    """
    kept = zero_outside(values, mask)
    old = zero_outside(old_values, mask).detach()
    targets = zero_outside(returns, mask).detach()
    near = old + (kept - old).clamp(-clip, clip)
    free_error, near_error = (kept - targets).square(), (near - targets).square()
    metrics = masked_means(mask, clip_fraction=(near_error > free_error).to(kept.dtype))
    return mean_of_kept(torch.maximum(free_error, near_error), mask, count=count) * 0.5, metrics


def huber_value_loss(
    values: Tensor, returns: Tensor, mask: Tensor, *, delta: float, count: float | Tensor | None = None
) -> tuple[Tensor, Metrics]:
    """½e² up to |e| = delta, then linear with slope delta, over the mask (b, u): no wild return rules the batch."""
    kept = zero_outside(values, mask)
    targets = zero_outside(returns, mask).detach()
    errors = functional.huber_loss(kept, targets, reduction="none", delta=delta)
    return mean_of_kept(errors, mask, count=count), {}


def value_loss(values: Tensor, old_values: Tensor, returns: Tensor, mask: Tensor, *, kind: str, clip: float) -> Tensor:
    """One of the two above by its name: `clipped`, or `huber` with `clip` as its delta."""
    if kind == "clipped":
        return clipped_value_loss(values, old_values, returns, mask, clip=clip)[0]
    return huber_value_loss(values, returns, mask, delta=clip)[0]


@torch.no_grad()
def explained_variance(values: Tensor, returns: Tensor, mask: Tensor) -> Tensor:
    """1 − var(R − V)/var(R) over the mask (b, u): 1 is perfect, 0 no better than a constant; 0 if R does not vary."""
    targets = zero_outside(returns, mask)
    spread = masked_variance(targets, mask)
    rest = masked_variance(targets.double() - zero_outside(values, mask).double(), mask)
    explained = torch.where(spread > 0, 1.0 - rest / spread.clamp(min=torch.finfo(spread.dtype).tiny), 0.0)
    return explained.to(values.dtype)
