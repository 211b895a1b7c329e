"""How a world model's action expert speaks: a Gaussian over a chunk of actions, or a flow that makes one from noise.

The flow (arXiv:2210.02747, in the convention of arXiv:2410.24164): x_t = t·noise + (1 − t)·a, and what is learned is
the velocity noise − a. Time 1 is pure noise; ten Euler steps lead back to 0. Dimensions that are padding are zeros on
the way in, and count in no loss.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal

import torch
from torch import Tensor, nn

from lookact.errors import ConfigError
from lookact.ops.masked import masked_mean, zero_outside

EULER_STEPS = 10
FREQUENCIES = 16


@dataclass(frozen=True)
class ActionSpec:
    """The shape of a chunk, and how it is made."""

    dim: int
    size: int
    """How many of the dimensions are real; the others are padding."""
    chunk: int
    head: Literal["gaussian", "flow"]
    std: float


class Actions(nn.Module):
    """Tokens of the action expert, and what its hidden states say."""

    real: Tensor

    def __init__(self, spec: ActionSpec, width: int) -> None:
        super().__init__()
        self.spec = spec
        self.places = nn.Parameter(torch.zeros(spec.chunk, width))
        self.input = nn.Linear(spec.dim + 2 * FREQUENCIES, width)
        self.output = nn.Linear(width, spec.dim)
        self.log_std = nn.Parameter(torch.full((spec.size,), math.log(spec.std)))
        self.register_buffer("real", torch.arange(spec.dim) < spec.size)

    @torch.no_grad()
    def start(self, generator: torch.Generator) -> None:
        """Places that can be told apart, and a Gaussian whose mean is near zero."""
        self.places.normal_(0.0, 0.5, generator=generator)
        self.output.weight.mul_(0.01)
        self.output.bias.zero_()

    def asked(self, rows: int) -> Tensor:
        """The Gaussian's tokens (rows, chunk, width): nothing but their places."""
        self._require("gaussian")
        return self.places.expand(rows, -1, -1)

    def mean(self, hidden: Tensor) -> Tensor:
        """The Gaussian's mean (n, chunk, size), within the bounds of actions."""
        return torch.tanh(self.output(hidden)[..., : self.spec.size])

    def noised(self, actions: Tensor, time: Tensor) -> Tensor:
        """The flow's tokens (n, chunk, width) of actions on their way (n, chunk, dim) at time (n,)."""
        self._require("flow")
        rates = torch.exp(torch.linspace(0.0, math.log(100.0), FREQUENCIES, device=time.device))
        phase = time[:, None] * rates
        clock = torch.cat([phase.sin(), phase.cos()], dim=1)[:, None].expand(-1, self.spec.chunk, -1)
        tokens: Tensor = self.places + self.input(torch.cat([self._real(actions), clock], dim=-1))
        return tokens

    def flow_loss(
        self, decide: Callable[[Tensor], Tensor], actions: Tensor, mask: Tensor, generator: torch.Generator
    ) -> Tensor:
        """Squared error of the velocity towards actions (n, chunk, dim), over those that count (n, chunk).

        `decide` maps the expert's tokens to its hidden states.
        """
        noise = torch.randn(actions.shape, generator=generator).to(actions.device)
        time = draw_times(len(actions), generator).to(actions.device)
        clean = zero_outside(self._real(actions), mask.unsqueeze(-1).expand(actions.shape))
        shown = time[:, None, None] * noise + (1 - time[:, None, None]) * clean
        velocity = self.output(decide(self.noised(shown, time)))
        counts = mask.unsqueeze(-1) & self.real
        return masked_mean((velocity - (noise - clean)).square(), counts)

    @torch.no_grad()
    def sample(self, decide: Callable[[Tensor], Tensor], noise: Tensor) -> Tensor:
        """A chunk (n, chunk, size) from noise (n, chunk, dim), by Euler steps from time 1 to 0."""
        x = self._real(noise)
        for step in range(EULER_STEPS):
            time = torch.full((len(x),), 1.0 - step / EULER_STEPS, device=x.device)
            x = x - self._real(self.output(decide(self.noised(x, time)))) / EULER_STEPS
        return x[..., : self.spec.size].clamp(-1.0, 1.0)

    def _real(self, actions: Tensor) -> Tensor:
        return zero_outside(actions, self.real.expand(actions.shape))

    def _require(self, head: str) -> None:
        if self.spec.head != head:
            raise ConfigError(f"model.action_head is {self.spec.head}: set it to {head} for this")


def draw_times(count: int, generator: torch.Generator) -> Tensor:
    """Times (count,) of the flow: Beta(1.5, 1)·0.999 + 0.001, by the inverse of its distribution, u^(1/1.5)."""
    return torch.rand(count, generator=generator).pow(1 / 1.5) * 0.999 + 0.001
