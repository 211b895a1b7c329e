"""An actor with tanh-squashed Gaussian actions, whose gradient is written out: for networks this small, autograd's
bookkeeping costs as much as the products."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor, nn

from lookact.models.ensemble import EnsembleMLP, run_ahead
from lookact.ops.gaussian import squashed_logprob

LOG_STD = (-5.0, 2.0)
"""Bounds of the log-deviation before squashing."""


@dataclass(frozen=True)
class Drawn:
    """Actions that were drawn, and all that their gradient needs."""

    actions: Tensor
    """(b, a)"""
    logprobs: Tensor
    """(b,)"""
    noise: Tensor
    """(b, a)"""
    std: Tensor
    """(b, a)"""
    free: Tensor
    """(b, a) whether the log-deviation was within its bounds."""
    met: list[Tensor]
    """(1, b, ...) what each of the actor's layers met."""

    def rows(self, start: int, stop: int) -> Drawn:
        """Some of the rows."""
        return Drawn(
            self.actions[start:stop],
            self.logprobs[start:stop],
            self.noise[start:stop],
            self.std[start:stop],
            self.free[start:stop],
            [part[:, start:stop] for part in self.met],
        )

    def gradient(self, for_actions: Tensor, weight: Tensor) -> Tensor:
        """Gradient (1, b, 2a) at the actor's outputs, of a loss whose gradient at the actions is `for_actions` (b, a)
        and at each log-density `weight` ()."""
        # of log π at the action before squashing: 2 tanh
        for_raw = for_actions * (1.0 - self.actions.square()) + self.actions * (2.0 * weight)
        for_log_std = (for_raw * self.noise * self.std - weight) * self.free
        return torch.cat([for_raw, for_log_std], dim=1)[None]


class SquashedActor(nn.Module):
    """Actions in (-1, 1) from states: mean and log-deviation of a Gaussian, squashed by tanh."""

    def __init__(self, state_size: int, action_size: int, hidden: Sequence[int], generator: torch.Generator) -> None:
        super().__init__()
        self.network = EnsembleMLP(1, (state_size, *hidden, 2 * action_size), generator)

    def forward(self, states: Tensor) -> tuple[Tensor, Tensor]:
        """Mean and log-deviation (b, a) of states (b, s)."""
        mean, log_std = self.network(states)[0].chunk(2, dim=-1)
        return mean, log_std.clamp(*LOG_STD)

    @torch.no_grad()
    def draw(self, states: Tensor, noise: Tensor) -> Drawn:
        """Actions at states (b, s) for standard normal noise (b, a)."""
        outputs, met = run_ahead(states, self.network.layers)
        mean, wanted = outputs[0].chunk(2, dim=-1)
        log_std = wanted.clamp(*LOG_STD)
        std = log_std.exp()
        raw = torch.addcmul(mean, std, noise)
        return Drawn(raw.tanh(), squashed_logprob(raw, noise, log_std), noise, std, log_std == wanted, met)

    @torch.no_grad()
    def act(self, states: Tensor, noise: Tensor | None = None) -> Tensor:
        """Actions (b, a) to take: sampled with `noise`, else the mean's."""
        mean, log_std = self(states)
        return (mean if noise is None else torch.addcmul(mean, log_std.exp(), noise)).tanh()
