"""Action expert by flow matching: a small network that denoises an action chunk, given a policy's hidden state."""

from __future__ import annotations

import math
from functools import partial
from typing import Literal

import torch
from torch import Tensor, nn
from torch.nn import functional

from lookact.ops.flow import euler_step, interpolate, sample_chain, sample_flow_times, score_chain, sde_step
from lookact.ops.losses import action_mse
from lookact.ops.masked import Metrics

FREQUENCIES = 16
"""Of the sinusoidal embedding of the flow's time."""
NOISE_RANGE = math.log(3.0)
"""The noise network turns a step's standard deviation up or down by at most this factor."""
FlowNoise = Literal["learned", "sde"]


def embed_time(time: Tensor) -> Tensor:
    """Sines and cosines (b, 2 · FREQUENCIES) of times (b,)."""
    phase = time[:, None] * torch.exp(torch.linspace(0.0, math.log(100.0), FREQUENCIES, device=time.device))
    return torch.cat([phase.sin(), phase.cos()], dim=1)


class FlowHead(nn.Module):
    """Velocity and noise of chunks (b, n), n numbers of a whole chunk, from hidden states (b, d)."""

    def __init__(self, width: int, size: int, *, steps: int, noise: FlowNoise) -> None:
        super().__init__()
        self.size, self.steps, self.noise = size, steps, noise
        self.context = nn.Linear(width, 2 * width)
        self.input = nn.Linear(size + 2 * FREQUENCIES, 2 * width)
        self.inner, self.velocity = nn.Linear(2 * width, 2 * width), nn.Linear(2 * width, size)
        self.deviation = nn.Linear(2 * width, size) if noise == "learned" else None

    @property
    def chain_size(self) -> int:
        """Numbers of a whole chain."""
        return (self.steps + 1) * self.size

    @torch.no_grad()
    def init_weights(self) -> None:
        """After the layers were drawn: a fresh flow hardly moves, and its noise is the one that is set."""
        self.velocity.weight.mul_(0.1)
        if self.deviation is not None:
            self.deviation.weight.zero_()

    def forward(self, hidden: Tensor, x: Tensor, time: Tensor) -> tuple[Tensor, Tensor]:
        """Velocity (b, n), and what turns the noise up or down, log (b, n)."""
        inner = functional.silu(self.context(hidden) + self.input(torch.cat([x, embed_time(time)], dim=-1)))
        inner = inner + functional.silu(self.inner(inner))
        velocity: Tensor = self.velocity(inner)
        # the noise must not change what cloning has learned
        turned = torch.zeros_like(x) if self.deviation is None else self.deviation(inner.detach())
        return velocity, NOISE_RANGE * torch.tanh(turned)

    def step(self, hidden: Tensor, log_std: Tensor, x: Tensor, time: Tensor) -> tuple[Tensor, Tensor]:
        """The Gaussian of the next x; log_std (n,) is of the noise of all steps together, or the SDE's level."""
        velocity, turned = self(hidden, x, time)
        if self.noise == "sde":
            return sde_step(x, velocity, time, log_std.exp(), steps=self.steps)
        return euler_step(x, velocity, steps=self.steps), log_std - 0.5 * math.log(self.steps) + turned

    def sample(self, hidden: Tensor, log_std: Tensor, noise: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """A chain of noise (b, chain), its means and log-stds, all flat."""
        found = sample_chain(partial(self.step, hidden, log_std), noise.view(len(noise), -1, self.size))
        chain, means, log_stds = (part.flatten(1) for part in found)
        return chain, means, log_stds

    def score(self, hidden: Tensor, log_std: Tensor, chain: Tensor) -> tuple[Tensor, Tensor]:
        """Means and log-stds (b, chain) of a stored chain."""
        rows = hidden.repeat_interleave(self.steps, dim=0)
        found = score_chain(partial(self.step, rows, log_std), chain.view(len(chain), -1, self.size))
        return found[0].flatten(1), found[1].flatten(1)

    def loss(self, hidden: Tensor, actions: Tensor, mask: Tensor, generator: torch.Generator) -> tuple[Tensor, Metrics]:
        """Squared error of the velocity towards action chunks (b, chunk, a), over those that count (b, chunk)."""
        noise = torch.randn(actions.shape, generator=generator).to(actions.device)
        time = sample_flow_times(len(actions), generator).to(actions.device)
        x, target = interpolate(actions, noise, time)
        velocity, _ = self(hidden, x.flatten(1), time)
        return action_mse(velocity.view_as(target), target, mask)
