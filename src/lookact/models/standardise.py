"""States at one scale: centimetres must count beside metres."""

from __future__ import annotations

import torch
from torch import Tensor, nn

CONSTANT, FINEST, FURTHEST = 1e-4, 0.02, 20.0
"""A number that varies less is left as it is, the smallest unit of others, and how many units away all is alike."""


class Standardise(nn.Module):
    """States (..., s) less their centre, in units of their spread; before `look_over` they are left as they are."""

    def __init__(self, size: int) -> None:
        super().__init__()
        self.centre, self.unit = nn.Buffer(torch.zeros(size)), nn.Buffer(torch.ones(size))
        self.furthest = nn.Buffer(torch.tensor(torch.inf))

    def look_over(self, states: Tensor) -> None:
        """Take centre and unit of each number from these states (n, s)."""
        states = states.to(self.unit.device)
        spread = states.std(dim=0, correction=0)
        self.centre.copy_(states.mean(dim=0))
        # what has hardly moved yet must not be blown up when it first does
        self.unit.copy_(torch.where(spread > CONSTANT, spread.clamp(min=FINEST), 1.0))
        self.furthest.fill_(FURTHEST)

    def forward(self, states: Tensor) -> Tensor:
        return ((states - self.centre) / self.unit).clamp(-self.furthest, self.furthest)
