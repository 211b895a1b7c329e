"""The actor of soft actor-critic: a Gaussian over actions, squashed into (-1, 1) by tanh."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor, nn

from lookact.models.ensemble import EnsembleMLP
from lookact.ops.gaussian import squashed_logprob

LOG_STD = (-5.0, 2.0)
"""Bounds of the log standard deviation before squashing."""


class SquashedActor(nn.Module):
    """Mean and log standard deviation (b, a) of states (b, s), and actions drawn from them."""

    def __init__(self, state_size: int, action_size: int, hidden: Sequence[int], generator: torch.Generator) -> None:
        super().__init__()
        self.network = EnsembleMLP(1, (state_size, *hidden, 2 * action_size), generator)

    def forward(self, states: Tensor) -> tuple[Tensor, Tensor]:
        mean, log_std = self.network(states).squeeze(0).chunk(2, dim=-1)
        return mean, log_std.clamp(*LOG_STD)

    def sample(self, states: Tensor, noise: Tensor) -> tuple[Tensor, Tensor]:
        """Actions (b, a) for standard normal noise (b, a), reparameterised, and their log-densities (b,)."""
        mean, log_std = self(states)
        raw = torch.addcmul(mean, log_std.exp(), noise)
        return raw.tanh(), squashed_logprob(raw, noise, log_std)

    @torch.no_grad()
    def act(self, states: Tensor, noise: Tensor | None = None) -> Tensor:
        """Actions (b, a) to take: sampled with `noise`, else the mean's."""
        mean, log_std = self(states)
        return (mean if noise is None else torch.addcmul(mean, log_std.exp(), noise)).tanh()
