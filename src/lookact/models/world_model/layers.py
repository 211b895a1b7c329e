"""Layers of the world model: experts with shared attention, and a GRU memory.

Mixture of transformers (F1, arXiv:2509.06951): the understanding, generation and action experts have their own norms,
projections and MLP; in each block, attention runs over the tokens of all of them, as the mask allows.
"""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional

from lookact.errors import DataError

EXPERTS = ("understanding", "generation", "action")
TARGETS = ("q_proj", "v_proj")
"""The linears that take LoRA adapters."""
ExpertTokens = tuple[str, Tensor]
"""An expert's name and its tokens (n, l, width)."""
KeyValues = list[tuple[Tensor, Tensor]]
"""Each block's keys and values (n, heads, l, width / heads) of the tokens so far."""


class Expert(nn.Module):
    """One expert's part of a transformer block."""

    def __init__(self, width: int, heads: int) -> None:
        super().__init__()
        self.heads = heads
        self.attention_norm, self.mlp_norm = nn.LayerNorm(width), nn.LayerNorm(width)
        self.q_proj, self.k_proj = nn.Linear(width, width), nn.Linear(width, width)
        self.v_proj, self.o_proj = nn.Linear(width, width), nn.Linear(width, width)
        self.up_proj, self.down_proj = nn.Linear(width, 3 * width), nn.Linear(3 * width, width)

    def project(self, x: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """Queries, keys and values (n, heads, l, width / heads) of tokens (n, l, width)."""
        normed = self.attention_norm(x)
        query, key, value = (
            layer(normed).view(*x.shape[:2], self.heads, -1).transpose(1, 2)
            for layer in (self.q_proj, self.k_proj, self.v_proj)
        )
        return query, key, value

    def mlp(self, x: Tensor, attended: Tensor) -> Tensor:
        """Output projection and MLP, both residual, of tokens (n, l, width)."""
        x = x + self.o_proj(attended)
        hidden: Tensor = x + self.down_proj(functional.gelu(self.up_proj(self.mlp_norm(x))))
        return hidden


class Block(nn.Module):
    """One layer of all experts."""

    def __init__(self, width: int, heads: int) -> None:
        super().__init__()
        self.experts = nn.ModuleDict({name: Expert(width, heads) for name in EXPERTS})

    def forward(
        self, parts: Sequence[ExpertTokens], mask: Tensor | None, known: KeyValues | None = None
    ) -> tuple[list[ExpertTokens], tuple[Tensor, Tensor]]:
        """The tokens after this layer, and the keys and values of all tokens; `known` are those of tokens before."""
        experts: list[Any] = [self.experts[name] for name, _ in parts]
        projected = [expert.project(x) for expert, (_, x) in zip(experts, parts)]
        query, key, value = (torch.cat(kind, dim=2) for kind in zip(*projected))
        if known:
            key, value = (torch.cat(both, dim=2) for both in zip(known[0], (key, value)))
        attended = functional.scaled_dot_product_attention(query, key, value, attn_mask=mask)
        shares = torch.split(attended.transpose(1, 2).flatten(2), [x.shape[1] for _, x in parts], dim=1)
        return [(name, expert.mlp(x, share)) for expert, (name, x), share in zip(experts, parts, shares)], (key, value)


class SharedAttention(nn.Module):
    """Transformer blocks over the tokens of several experts, and each expert's final norm."""

    def __init__(self, width: int, layers: int, heads: int) -> None:
        super().__init__()
        self.blocks = nn.ModuleList([Block(width, heads) for _ in range(layers)])
        self.norms = nn.ModuleDict({name: nn.LayerNorm(width) for name in EXPERTS})

    def forward(self, parts: Sequence[ExpertTokens], mask: Tensor | None) -> list[Tensor]:
        """Each part's tokens (n, l, width) after the last block; mask (L, L) is True where a row's token attends."""
        return self.extend(parts, mask, [])[0]

    def extend(
        self, parts: Sequence[ExpertTokens], mask: Tensor | None, known: KeyValues
    ) -> tuple[list[Tensor], KeyValues]:
        """The same of further tokens, which also attend to those whose keys and values are `known`; those of all.

        mask: (new, known + new), None where all attend to all.
        """
        current, everything = list(parts), KeyValues()
        for index, block in enumerate(self.blocks):
            current, both = block(current, mask, known[index : index + 1])
            everything.append(both)
        return [self.norms[name](x) for name, x in current], everything


def attention_mask(groups: Sequence[tuple[int, Sequence[int]]]) -> Tensor:
    """(L, L) True where a token attends, for groups of (length, indices of the groups it attends to)."""
    sizes = [length for length, _ in groups]
    group = torch.repeat_interleave(torch.arange(len(groups)), torch.tensor(sizes))
    attends = torch.zeros(len(groups), len(groups), dtype=torch.bool)
    for index, (_, others) in enumerate(groups):
        attends[index, list(others)] = True
    return attends[group][:, group]


class Memory(nn.Module):
    """GRU with an explicit state: inputs (b, t, d) to outputs (b, t, hidden).

    A state is (layers, b, hidden): zeros at an episode's first frame, never None, each row reset by itself. With
    `backprop` off no gradient runs through it.
    """

    def __init__(self, inputs: int, hidden: int, layers: int = 1, *, backprop: bool = True) -> None:
        super().__init__()
        self.gru = nn.GRU(inputs, hidden, layers, batch_first=True)
        self.hidden, self.layers, self.backprop = hidden, layers, backprop

    def initial(self, rows: int) -> Tensor:
        """Zeros (layers, rows, hidden): the state before an episode's first frame."""
        weight = next(self.gru.parameters())
        return weight.new_zeros(self.layers, rows, self.hidden)

    def forward(self, x: Tensor, carry: Tensor | None, starts: Tensor | None = None) -> tuple[Tensor, Tensor]:
        """Outputs after each of x (b, t, d), and the state to carry on.

        starts (b, t) is True where an episode begins: that row's state is zeros before it. The gradient reaches back
        to the first of these inputs, and into `carry` unless it is detached.
        """
        state = _checked(carry, self.layers, len(x), self.hidden)
        with torch.set_grad_enabled(self.backprop and torch.is_grad_enabled()):
            if starts is None:
                return self._run(x, state)
            # rows that begin together are run together: between two such columns the GRU goes at full speed
            columns = sorted({0, *starts.any(dim=0).nonzero().flatten().tolist(), x.shape[1]})
            parts = []
            for first, last in itertools.pairwise(columns):
                state = reset_rows(state, starts[:, first])
                outputs, state = self._run(x[:, first:last], state)
                parts.append(outputs)
            return torch.cat(parts, dim=1), state

    def _run(self, x: Tensor, state: Tensor) -> tuple[Tensor, Tensor]:
        outputs, after = self.gru(x, state.contiguous())
        return outputs, after


def reset_rows(carry: Tensor, rows: Tensor) -> Tensor:
    """The state (layers, b, hidden) with zeros in the rows (b,) that are True, and all others as they were."""
    return carry.masked_fill(rows[None, :, None], 0.0)


def _checked(carry: Tensor | None, layers: int, rows: int, hidden: int) -> Tensor:
    if carry is None:
        raise DataError("memory is None: start an episode with Memory.initial(rows), which is zeros")
    if carry.shape != (layers, rows, hidden):
        raise DataError(
            f"memory has shape {tuple(carry.shape)}, not (layers, rows, hidden) = {(layers, rows, hidden)}: "
            "start with Memory.initial(rows) and carry on with what is handed back"
        )
    return carry
