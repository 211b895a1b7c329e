"""A small transformer in which everything a policy knows meets, and one token reads the outcome."""

from __future__ import annotations

import torch
from torch import Tensor, nn
from torch.nn import functional

from lookact.models.vla.encoders import initialise


class Block(nn.Module):
    """Attention and a feed-forward layer, each behind a norm, over (b, n, d)."""

    def __init__(self, width: int, heads: int) -> None:
        super().__init__()
        self.width, self.heads = width, heads
        self.before, self.between = nn.LayerNorm(width), nn.LayerNorm(width)
        self.project, self.output = nn.Linear(width, 3 * width), nn.Linear(width, width)
        self.inner = nn.Sequential(nn.Linear(width, 2 * width), nn.GELU(), nn.Linear(2 * width, width))

    def forward(self, tokens: Tensor, asking: int | None = None) -> Tensor:
        """(b, n, d) -> (b, n, d), or only the first `asking` tokens, which all others still answer."""
        asked, normed, width = tokens, self.before(tokens), self.width
        if asking is None:
            query, key, value = self.project(normed).chunk(3, dim=-1)
        else:
            asked, (weight, bias) = tokens[:, :asking], (self.project.weight, self.project.bias)
            query = functional.linear(normed[:, :asking], weight[:width], bias[:width])
            key, value = functional.linear(normed, weight[width:], bias[width:]).chunk(2, dim=-1)
        # written out: for a few dozen tokens the fused kernel takes longer, forward and backward
        scores = self._heads(query * (width // self.heads) ** -0.5) @ self._heads(key).mT
        mixed = scores.softmax(dim=-1) @ self._heads(value)
        asked = asked + self.output(mixed.transpose(1, 2).flatten(2))
        outcome: Tensor = asked + self.inner(self.between(asked))
        return outcome

    def _heads(self, tokens: Tensor) -> Tensor:
        """(b, n, d) -> (b, heads, n, d / heads)"""
        return tokens.view(*tokens.shape[:2], self.heads, -1).transpose(1, 2)


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
        for block in self.blocks[:-1]:
            tokens = block(tokens)
        # after the last block only the readout is looked at
        outcome: Tensor = self.norm(self.blocks[-1](tokens, asking=1)[:, 0])
        return outcome
