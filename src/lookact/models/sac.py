"""The networks of soft actor-critic: an actor, twin critics, and their targets."""

from __future__ import annotations

import math
from collections.abc import Sequence

import torch
from torch import Tensor, nn

from lookact.models.ensemble import EnsembleMLP
from lookact.models.squashed_actor import SquashedActor
from lookact.models.standardise import Standardise


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
