"""Mean and deviation of all vectors seen so far, merged part by part (Chan, Golub and LeVeque, 1979)."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor


class RunningMoments:
    """Of vectors (s,), in float64. Before anything is seen the mean is 0 and the deviation 1."""

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
