"""Experts that share attention: tokens of each kind have weights of their own, and all look at one another.

Understanding reads what is there, generation foresees what comes, action decides (arXiv:2509.06951). In each block
every expert makes queries, keys and values of its own tokens; attention runs over all of them, as the mask allows.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional

EXPERTS = ("understanding", "generation", "action")
TARGETS = ("q_proj", "v_proj")
"""The linears that take low-rank adapters."""
Part = tuple[str, Tensor]
"""An expert's name and its tokens (n, l, width)."""


class Expert(nn.Module):
    """One expert's share of a block."""

    def __init__(self, width: int, heads: int) -> None:
        super().__init__()
        self.heads = heads
        self.before, self.between = nn.LayerNorm(width), nn.LayerNorm(width)
        self.q_proj, self.k_proj = nn.Linear(width, width), nn.Linear(width, width)
        self.v_proj, self.o_proj = nn.Linear(width, width), nn.Linear(width, width)
        self.up_proj, self.down_proj = nn.Linear(width, 3 * width), nn.Linear(3 * width, width)

    def project(self, x: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """Queries, keys and values (n, heads, l, width / heads) of tokens (n, l, width)."""
        seen = self.before(x)
        query, key, value = (
            layer(seen).view(*x.shape[:2], self.heads, -1).transpose(1, 2)
            for layer in (self.q_proj, self.k_proj, self.v_proj)
        )
        return query, key, value

    def absorb(self, x: Tensor, attended: Tensor) -> Tensor:
        """The tokens (n, l, width) with what they attended to, thought over."""
        x = x + self.o_proj(attended)
        thought: Tensor = x + self.down_proj(functional.gelu(self.up_proj(self.between(x))))
        return thought


class Block(nn.Module):
    """One layer of all experts."""

    def __init__(self, width: int, heads: int) -> None:
        super().__init__()
        self.experts = nn.ModuleDict({name: Expert(width, heads) for name in EXPERTS})

    def forward(self, parts: Sequence[Part], mask: Tensor) -> list[Part]:
        experts: list[Any] = [self.experts[name] for name, _ in parts]
        projected = [expert.project(x) for expert, (_, x) in zip(experts, parts)]
        query, key, value = (torch.cat(kind, dim=2) for kind in zip(*projected))
        attended = functional.scaled_dot_product_attention(query, key, value, attn_mask=mask)
        shares = torch.split(attended.transpose(1, 2).flatten(2), [x.shape[1] for _, x in parts], dim=1)
        return [(name, expert.absorb(x, share)) for expert, (name, x), share in zip(experts, parts, shares)]


class SharedAttention(nn.Module):
    """Blocks over the tokens of several experts, and a norm at each one's end."""

    def __init__(self, width: int, layers: int, heads: int) -> None:
        super().__init__()
        self.blocks = nn.ModuleList([Block(width, heads) for _ in range(layers)])
        self.norms = nn.ModuleDict({name: nn.LayerNorm(width) for name in EXPERTS})

    def forward(self, parts: Sequence[Part], mask: Tensor) -> list[Tensor]:
        """Each part's tokens (n, l, width) after the last block; mask (L, L) is True where a row's token may look."""
        current = list(parts)
        for block in self.blocks:
            current = block(current, mask)
        return [self.norms[name](x) for name, x in current]


def attention_mask(groups: Sequence[tuple[int, Sequence[int]]]) -> Tensor:
    """(L, L) True where a token may look, for groups of (length, indices of the groups it sees)."""
    sizes = [length for length, _ in groups]
    group = torch.repeat_interleave(torch.arange(len(groups)), torch.tensor(sizes))
    sees = torch.zeros(len(groups), len(groups), dtype=torch.bool)
    for index, (_, seen) in enumerate(groups):
        sees[index, list(seen)] = True
    return sees[group][:, group]
