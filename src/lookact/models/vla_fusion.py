"""A small transformer in which everything a policy knows meets, and one token reads the outcome."""

from __future__ import annotations

import torch
from torch import Tensor, nn
from torch.nn import functional

from lookact.models.vla_encoders import initialise


class Block(nn.Module):
    """Attention and a feed-forward layer, each behind a norm, over (b, n, d)."""

    def __init__(self, width: int, heads: int) -> None:
        super().__init__()
        self.heads = heads
        self.before, self.between = nn.LayerNorm(width), nn.LayerNorm(width)
        self.project, self.output = nn.Linear(width, 3 * width), nn.Linear(width, width)
        self.inner = nn.Sequential(nn.Linear(width, 2 * width), nn.GELU(), nn.Linear(2 * width, width))

    def forward(self, tokens: Tensor) -> Tensor:
        b, n, d = tokens.shape
        split = self.project(self.before(tokens)).view(b, n, 3, self.heads, d // self.heads)
        query, key, value = split.permute(2, 0, 3, 1, 4)
        mixed = functional.scaled_dot_product_attention(query, key, value)
        tokens = tokens + self.output(mixed.transpose(1, 2).reshape(b, n, d))
        outcome: Tensor = tokens + self.inner(self.between(tokens))
        return outcome


class Fusion(nn.Module):
    """(b, n, d) tokens -> (b, d): what a token of its own has read from them after some blocks."""

    def __init__(self, width: int, layers: int, heads: int, generator: torch.Generator) -> None:
        super().__init__()
        self.readout = nn.Parameter(torch.zeros(1, 1, width))
        self.blocks = nn.ModuleList(Block(width, heads) for _ in range(layers))
        self.norm = nn.LayerNorm(width)
        initialise(self.blocks, generator)
        nn.init.normal_(self.readout, std=width**-0.5, generator=generator)

    def forward(self, tokens: Tensor) -> Tensor:
        tokens = torch.cat([self.readout.expand(len(tokens), -1, -1), tokens], dim=1)
        for block in self.blocks:
            tokens = block(tokens)
        outcome: Tensor = self.norm(tokens[:, 0])
        return outcome
