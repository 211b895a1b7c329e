"""An actor with tanh-squashed Gaussian actions, whose gradient is written out: for networks this small, autograd's
bookkeeping costs as much as the products. Products are torch's; of arrays as small as actions, numpy makes less ado."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from lookact.models.ensemble import EnsembleMLP, run_ahead
from lookact.ops.gaussian import LOG_TWO_PI

LOG_STD = (-5.0, 2.0)
"""Bounds of the log-deviation before squashing."""
Floats = NDArray[np.float32]


@dataclass(frozen=True)
class Drawn:
    """Actions that were drawn, and all that their gradient needs."""

    actions: Floats
    """(b, a)"""
    logprobs: Floats
    """(b,)"""
    noise: Floats
    """(b, a)"""
    std: Floats
    """(b, a)"""
    free: NDArray[np.bool_]
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

    def gradient(self, for_actions: Floats, weight: float) -> Tensor:
        """Gradient (1, b, 2a) at the actor's outputs, of a loss whose gradient at the actions is `for_actions` (b, a)
        and at each log-density `weight`."""
        # of log π at the action before squashing: 2 tanh
        for_raw = for_actions * (1.0 - self.actions * self.actions) + self.actions * (2.0 * weight)
        for_log_std = (for_raw * self.noise * self.std - weight) * self.free
        return torch.from_numpy(np.concatenate([for_raw, for_log_std], axis=1)[None])


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
        mean, wanted = np.split(outputs[0].numpy(), 2, axis=1)
        log_std = np.minimum(np.maximum(wanted, LOG_STD[0]), LOG_STD[1])
        std, given = np.exp(log_std), noise.numpy()
        raw = mean + std * given
        return Drawn(np.tanh(raw), _logprobs(raw, given, log_std), given, std, log_std == wanted, met)

    @torch.no_grad()
    def act(self, states: Tensor, noise: Tensor | None = None) -> Tensor:
        """Actions (b, a) to take: sampled with `noise`, else the mean's."""
        mean, log_std = self(states)
        return (mean if noise is None else torch.addcmul(mean, log_std.exp(), noise)).tanh()


def _logprobs(raw: Floats, noise: Floats, log_std: Floats) -> Floats:
    """`ops.gaussian.squashed_logprob` (b,) of arrays (b, a)."""
    far = np.abs(raw)
    # log(1 − tanh²x), which is even, so that e^−2|x| never overflows
    shrink = (math.log(2.0) - far - np.log1p(np.exp(far * -2.0))) * 2.0
    density = (noise * noise + LOG_TWO_PI) * -0.5 - log_std - shrink
    summed: Floats = np.add.reduce(density, axis=1)
    return summed
