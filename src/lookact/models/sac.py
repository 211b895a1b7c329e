"""The networks of soft actor-critic: an actor with tanh-squashed Gaussian actions, twin critics, and their targets."""

from __future__ import annotations

import math
from collections.abc import Sequence

import torch
from torch import Tensor, nn

from lookact.models.ensemble import EnsembleMLP
from lookact.models.standardise import Standardise
from lookact.ops.gaussian import squashed_logprob

LOG_STD = (-5.0, 2.0)
"""Bounds of the log-deviation before squashing."""


class SquashedActor(nn.Module):
    """Actions in (-1, 1) from states: mean and log-deviation of a Gaussian, squashed by tanh."""

    def __init__(self, state_size: int, action_size: int, hidden: Sequence[int], generator: torch.Generator) -> None:
        super().__init__()
        self.network = EnsembleMLP(1, (state_size, *hidden, 2 * action_size), generator)

    def forward(self, states: Tensor) -> tuple[Tensor, Tensor]:
        """Mean and log-deviation (b, a) of states (b, s)."""
        mean, log_std = self.network(states)[0].chunk(2, dim=-1)
        return mean, log_std.clamp(*LOG_STD)

    def sample(self, states: Tensor, noise: Tensor) -> tuple[Tensor, Tensor]:
        """Actions (b, a) with a gradient, and their log-densities (b,), for standard normal noise (b, a)."""
        mean, log_std = self(states)
        raw = torch.addcmul(mean, log_std.exp(), noise)
        return raw.tanh(), squashed_logprob(raw, noise, log_std)

    @torch.no_grad()
    def act(self, states: Tensor, noise: Tensor | None = None) -> Tensor:
        """Actions (b, a) to take: sampled with `noise`, else the mean's."""
        mean, log_std = self(states)
        return (mean if noise is None else torch.addcmul(mean, log_std.exp(), noise)).tanh()


class SAC(nn.Module):
    """Everything that soft actor-critic learns. The targets and alpha follow by `train.sac`.

    Actor and critics read states as `standardise` gives them; only `act` takes raw ones.
    """

    def __init__(
        self,
        state_size: int,
        action_size: int,
        *,
        hidden: Sequence[int] = (256, 256),
        alpha: float = 0.1,
        generator: torch.Generator,
    ) -> None:
        super().__init__()
        self.state_size, self.action_size = state_size, action_size
        self.standardise = Standardise(state_size)
        self.actor = SquashedActor(state_size, action_size, hidden, generator)
        sizes = (state_size + action_size, *hidden, 1)
        self.critics = EnsembleMLP(2, sizes, generator)
        self.targets = EnsembleMLP(2, sizes, generator).requires_grad_(False)
        self.log_alpha = nn.Parameter(torch.tensor(math.log(alpha)))
        self.targets.load_state_dict(self.critics.state_dict())

    def act(self, states: Tensor, noise: Tensor | None = None) -> Tensor:
        """Actions (b, a) to take at raw states (b, s): sampled with `noise`, else the mean's."""
        return self.actor.act(self.standardise(states), noise)

    def reset_critics(self, generator: torch.Generator) -> None:
        """Start critics and targets anew: a changed reward makes what they have learned worthless."""
        fresh = EnsembleMLP(2, self.critics.sizes, generator).state_dict()
        self.critics.load_state_dict(fresh)
        self.targets.load_state_dict(fresh)
