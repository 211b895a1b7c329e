"""Heads of the world model: actions (a Gaussian over an action chunk, or flow matching), and next-frame tokens.

Flow matching (arXiv:2210.02747, in the convention of arXiv:2410.24164): x_t = t·noise + (1 − t)·a, and the target is
the velocity noise − a. Time 1 is pure noise; ten Euler steps lead back to 0. Padding dimensions are zeros on the way
in, and count in no loss.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Literal

import torch
from torch import Tensor, nn
from torch.nn import functional

from lookact.errors import ConfigError
from lookact.models.flow_head import FREQUENCIES, embed_time
from lookact.models.sac import EnsembleMLP
from lookact.ops.flow import chain_times, euler_step, interpolate, sample_flow_times
from lookact.ops.masked import masked_mean, zero_outside

EULER_STEPS = 10
NEIGHBOURS = 9
MAX_LOG_PRECISION = 4.0
"""Bound on the log-precision that a codebook head predicts."""


@dataclass(frozen=True)
class ActionSpec:
    """The shape of an action chunk, and the kind of head."""

    dim: int
    size: int
    """How many of the dimensions are real; the others are padding."""
    chunk: int
    head: Literal["gaussian", "flow"]
    std: float


class ActionHead(nn.Module):
    """Input tokens of the action expert, and the distribution over action chunks that its hidden states give."""

    mask: Tensor

    def __init__(self, spec: ActionSpec, width: int) -> None:
        super().__init__()
        self.spec = spec
        self.queries = nn.Parameter(torch.zeros(spec.chunk, width))
        self.input = nn.Linear(spec.dim + 2 * FREQUENCIES, width)
        self.output = nn.Linear(width, spec.dim)
        self.log_std = nn.Parameter(torch.full((spec.size,), math.log(spec.std)))
        self.register_buffer("mask", torch.arange(spec.dim) < spec.size)

    @torch.no_grad()
    def init_weights(self, generator: torch.Generator) -> None:
        """Random queries, and a Gaussian whose mean is near zero."""
        self.queries.normal_(0.0, 0.5, generator=generator)
        self.output.weight.mul_(0.01)
        self.output.bias.zero_()

    def query_tokens(self, rows: int) -> Tensor:
        """The Gaussian head's input tokens (rows, chunk, width): the learned queries."""
        self._require("gaussian")
        return self.queries.expand(rows, -1, -1)

    def mean(self, hidden: Tensor) -> Tensor:
        """The Gaussian's mean (n, chunk, size), within the bounds of actions."""
        return torch.tanh(self.output(hidden)[..., : self.spec.size])

    def flow_tokens(self, actions: Tensor, time: Tensor) -> Tensor:
        """The flow head's input tokens (n, chunk, width) of noised actions (n, chunk, dim) at time (n,)."""
        self._require("flow")
        embedding = embed_time(time)[:, None].expand(-1, self.spec.chunk, -1)
        tokens: Tensor = self.queries + self.input(torch.cat([self._masked(actions), embedding], dim=-1))
        return tokens

    def velocity(self, hidden: Tensor) -> Tensor:
        """The flow's velocity (n, chunk, size) without padding."""
        return self.output(hidden)[..., : self.spec.size]  # type: ignore[no-any-return]

    def flow_loss(
        self, expert: Callable[[Tensor], Tensor], actions: Tensor, mask: Tensor, generator: torch.Generator
    ) -> Tensor:
        """Squared error of the velocity towards actions (n, chunk, dim), over those that count (n, chunk).

        `expert` maps the action expert's tokens to its hidden states.
        """
        noise = torch.randn(actions.shape, generator=generator).to(actions.device)
        time = sample_flow_times(len(actions), generator).to(actions.device)
        clean = zero_outside(self._masked(actions), mask.unsqueeze(-1).expand(actions.shape))
        noised, target = interpolate(clean, noise, time)
        velocity = self.output(expert(self.flow_tokens(noised, time)))
        counts = mask.unsqueeze(-1) & self.mask
        return masked_mean((velocity - target).square(), counts)

    @torch.no_grad()
    def sample(self, expert: Callable[[Tensor], Tensor], noise: Tensor) -> Tensor:
        """A chunk (n, chunk, size) from noise (n, chunk, dim), by Euler steps from time 1 to 0."""
        x = self._masked(noise)
        for time in chain_times(EULER_STEPS, x.device):
            velocity = self._masked(self.output(expert(self.flow_tokens(x, time.expand(len(x))))))
            x = euler_step(x, velocity, steps=EULER_STEPS)
        return x[..., : self.spec.size].clamp(-1.0, 1.0)

    def _masked(self, actions: Tensor) -> Tensor:
        return zero_outside(actions, self.mask.expand(actions.shape))

    def _require(self, head: str) -> None:
        if self.spec.head != head:
            raise ConfigError(f"model.action_head is {self.spec.head}: set it to {head} for this")


class CodebookHead(nn.Module):
    """Next-frame token logits (members, n, tokens, codes) from hidden states (n, tokens, width), by an ensemble.

    A token's baseline is the present feature at its cells minus what the coarser scales of the next frame already
    explain: the right answer if nothing moved. Each member predicts a residual to it and a precision; an entry's logit
    is minus the squared distance to baseline + residual, times the precision, plus the log of how often the entry is
    used and an entry-wise bias. Entries that lie close together are thus learned together.
    """

    def __init__(self, members: int, width: int, latent: int, codes: int, generator: torch.Generator) -> None:
        super().__init__()
        self.latent = latent
        self.heads = EnsembleMLP(members, (width, width, latent + 1 + codes), generator)

    def forward(
        self, hidden: Tensor, baseline: Tensor, codebooks: Tensor, usage: Tensor, scales: Sequence[int]
    ) -> Tensor:
        """baseline: (n, tokens, latent); codebooks: (scales, codes, latent); usage: (scales, codes) in any unit."""
        output = self.heads(hidden.flatten(0, 1))
        output = output.reshape(len(output), *hidden.shape[:2], -1)
        sizes = [side * side for side in scales]
        parts = zip(torch.split(output, sizes, dim=2), torch.split(baseline, sizes, dim=1), codebooks)
        # of two equal entries, only the one that is used may be likely
        prior = usage.clamp(min=1e-6).log()
        return torch.cat([self._logits(*part) + log_usage for part, log_usage in zip(parts, prior)], dim=2)

    def _logits(self, output: Tensor, baseline: Tensor, codebook: Tensor) -> Tensor:
        """Minus squared distances to entries, up to a constant, plus the entry-wise bias."""
        unit = codebook.square().mean().clamp(min=1e-8).sqrt()
        entries = codebook / unit
        residual, log_precision, bias = torch.split(output, [self.latent, 1, len(codebook)], dim=-1)
        predicted = baseline / unit + residual
        precision = log_precision.clamp(-MAX_LOG_PRECISION, MAX_LOG_PRECISION).exp()
        # expanded by hand: cdist would build every distance vector
        similarity = precision * (2.0 * predicted @ entries.mT - entries.square().sum(dim=1)) / self.latent
        return similarity + bias


def neighbourhoods(cells: Tensor, scales: Sequence[int]) -> Tensor:
    """The 3×3 features around each token's cell (n, tokens, 9, d), its own in the middle, of cells (n, grid², d)."""
    grid = scales[-1]
    planes = cells.transpose(1, 2).reshape(len(cells), -1, grid, grid)
    found = []
    for side in scales:
        pooled = functional.adaptive_avg_pool2d(planes, side)
        padded = functional.pad(pooled, (1, 1, 1, 1), mode="replicate")
        blocks = functional.unfold(padded, 3).reshape(len(cells), -1, NEIGHBOURS, side * side)
        found.append(blocks.permute(0, 3, 2, 1))
    return torch.cat(found, dim=1)
