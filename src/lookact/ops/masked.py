"""Statistics of the units that count: masked reductions, and running moments of vectors.

Every masked function picks the counted entries BEFORE it does arithmetic on them, so that whatever stands
outside the mask (padding, NaN, infinity) reaches neither the value nor the gradient.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

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


def masked_mean(x: Tensor, mask: Tensor) -> Tensor:
    """Mean of x (b, u) over the mask (b, u): a scalar, 0 if nothing counts."""
    return masked_sum(x, mask) / units_of(mask)


def mean_of_kept(kept: Tensor, mask: Tensor) -> Tensor:
    """`masked_mean` of what is zero outside the mask already."""
    return kept.sum() / units_of(mask)


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


# ---- running moments


class RunningMoments:
    """Mean and deviation of all vectors (s,) seen so far, merged part by part (Chan, Golub and LeVeque, 1979).

    In float64. Before anything is seen the mean is 0 and the deviation 1."""

    def __init__(self, size: int) -> None:
        self.count = 0.0
        self.mean = torch.zeros(size, dtype=torch.float64)
        self.spread = torch.zeros(size, dtype=torch.float64)
        """Summed squares of the distances from the mean."""

    def merge(self, count: float, total: Tensor, squares: Tensor) -> None:
        """`count` more vectors with their sum (s,) and the sum of their squares (s,), as any number of parts gave them.

        Sums are of float64: in float32 the squares of numbers far from 0 would cancel.
        """
        if count <= 0:
            return
        mean = total / count
        gap, joint = mean - self.mean, self.count + count
        self.spread = (
            self.spread + (squares - count * mean.square()).clamp_min(0) + gap.square() * self.count * count / joint
        )
        self.mean = self.mean + gap * count / joint
        self.count = joint

    @property
    def deviation(self) -> Tensor:
        """(s,) standard deviation; 1 where nothing was seen or nothing varies."""
        found = (self.spread / max(self.count, 1.0)).sqrt()
        return torch.where(found > 0, found, torch.ones_like(found))

    def state_dict(self) -> dict[str, Any]:
        return {"count": self.count, "mean": self.mean, "spread": self.spread}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        self.count, self.mean, self.spread = float(state["count"]), state["mean"], state["spread"]


def sums(x: Tensor) -> tuple[float, Tensor, Tensor]:
    """How many vectors x (n, s) holds, their sum (s,) and the sum of their squares (s,), in float64."""
    wide = x.double()
    return float(len(x)), wide.sum(dim=0), wide.square().sum(dim=0)
