"""The networks of soft actor-critic: an actor, twin critics, and their targets."""

from __future__ import annotations

import math
from collections.abc import Sequence

import torch
from torch import Tensor, nn

from lookact.models.ensemble import EnsembleMLP
from lookact.models.squashed_actor import SquashedActor
from lookact.models.standardise import Standardise


class TwinCritics(nn.Module):
    """Q values (2, b) of states (b, s) and actions (b, a)."""

    def __init__(self, state_size: int, action_size: int, hidden: Sequence[int], generator: torch.Generator) -> None:
        super().__init__()
        self.network = EnsembleMLP(2, (state_size + action_size, *hidden, 1), generator)

    def forward(self, states: Tensor, actions: Tensor) -> Tensor:
        q: Tensor = self.network(torch.cat([states, actions], dim=-1))
        return q.squeeze(-1)


class SAC(nn.Module):
    """Everything that soft actor-critic learns. The target critics and alpha follow by `train.sac`.

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
        self.state_size, self.action_size, self.hidden = state_size, action_size, tuple(hidden)
        self.standardise = Standardise(state_size)
        self.actor = SquashedActor(state_size, action_size, hidden, generator)
        self.critics = TwinCritics(state_size, action_size, hidden, generator)
        self.target_critics = TwinCritics(state_size, action_size, hidden, generator).requires_grad_(False)
        self.target_critics.load_state_dict(self.critics.state_dict())
        self.log_alpha = nn.Parameter(torch.tensor(math.log(alpha)))

    @property
    def device(self) -> torch.device:
        return self.log_alpha.device

    def act(self, states: Tensor, noise: Tensor | None = None) -> Tensor:
        """Actions (b, a) to take at raw states (b, s): sampled with `noise`, else the mean's."""
        return self.actor.act(self.standardise(states), noise)

    def reset_critics(self, generator: torch.Generator) -> None:
        """Start critics and targets anew: a changed reward makes what they have learned worthless."""
        fresh = TwinCritics(self.state_size, self.action_size, self.hidden, generator).state_dict()
        self.critics.load_state_dict(fresh)
        self.target_critics.load_state_dict(fresh)
