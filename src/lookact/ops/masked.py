"""Reductions over the units that count.

Every function here picks the counted entries BEFORE it does arithmetic on them, so that whatever stands
outside the mask (padding, NaN, infinity) reaches neither the value nor the gradient.
"""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor

Metrics = dict[str, Tensor]
"""Name to detached scalar: means over the counted units at hand, never divided by a global count."""


def zero_outside(x: Tensor, mask: Tensor) -> Tensor:
    """`x` where the mask is True and exact zeros elsewhere, in the mask's shape; x may have axes of length 1."""
    if x.dim() != mask.dim():
        # (b,) against (b, u) would broadcast along the wrong axis whenever b equals u
        raise ValueError(f"shape {tuple(x.shape)} does not line up with mask {tuple(mask.shape)}: add the missing axis")
    return torch.where(mask, x if x.shape == mask.shape else x.expand(mask.shape), 0)


def masked_sum(x: Tensor, mask: Tensor) -> Tensor:
    """Sum of x (b, u) over the mask (b, u): a scalar, 0 if nothing counts."""
    return zero_outside(x, mask).sum()


def masked_mean(x: Tensor, mask: Tensor, *, count: float | Tensor | None = None) -> Tensor:
    """Mean of x (b, u) over the mask (b, u): a scalar, 0 if nothing counts.

    `count` replaces the number of counted units: give the number over all micro-batches and processes, and
    the sum of the parts is the mean of the whole.
    """
    return masked_sum(x, mask) / (units_of(mask) if count is None else count)


def mean_of_kept(kept: Tensor, mask: Tensor, *, count: float | Tensor | None = None) -> Tensor:
    """`masked_mean` of what is zero outside the mask already."""
    return kept.sum() / (units_of(mask) if count is None else count)


def units_of(mask: Tensor) -> Tensor:
    """How many units count: a scalar, 1 where none does, so that it can divide."""
    return mask.sum().clamp(min=1)


@torch.no_grad()
def masked_means(mask: Tensor, **values: Tensor) -> Metrics:
    """The mean over the mask (b, u) of each value (b, u), all of one type, in one pass: for metrics."""
    kept = torch.where(mask, torch.stack(list(values.values())), 0)
    means = kept.sum(dim=(1, 2)) / units_of(mask)
    return dict(zip(values, means.unbind()))


def masked_max(x: Tensor, mask: Tensor) -> Tensor:
    """Largest counted entry of a non-negative x (b, u): a scalar, 0 if nothing counts."""
    kept = zero_outside(x, mask)
    return kept.max() if kept.numel() else kept.sum()


def masked_variance(x: Tensor, mask: Tensor) -> Tensor:
    """Population variance of x (b, u) over the mask, in float64: a scalar, 0 for one unit or none."""
    wide = zero_outside(x, mask).double()
    return masked_mean((wide - masked_mean(wide, mask)).square(), mask)


@torch.no_grad()
def whiten(
    x: Tensor, mask: Tensor, *, eps: float = 1e-8, sum_everywhere: Callable[[float], float] | None = None
) -> Tensor:
    """x (b, u) with mean 0 and deviation 1 over the mask, 0 outside, without gradient; equal entries all become 0.

    `sum_everywhere` adds a number up over the processes that share the units.
    """
    total = sum_everywhere or float
    # in float32 the rounding of the mean alone would blow equal entries up to order one
    wide = zero_outside(x, mask).double()
    count = max(1.0, total(float(mask.sum())))
    centred = zero_outside(wide - total(float(wide.sum())) / count, mask)
    deviation = (total(float(centred.square().sum())) / count) ** 0.5
    whitened: Tensor = (centred / (deviation + eps)).to(x.dtype)
    return whitened
