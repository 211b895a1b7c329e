"""Key-value cache of many conversations, and the forward pass that appends to it."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

if TYPE_CHECKING:
    from lookact.models.vlm.policy import ChatVLM

Layers = list[tuple[Tensor, Tensor]]
"""Keys and values, layer by layer."""


class KVCache:
    """Key-value cache of many rows, written in place: a token costs its own size, not a copy of the past.

    It has what a Hugging Face attention layer asks of a cache: `update` for every layer, in order.
    """

    def __init__(self) -> None:
        self._layers: list[tuple[Tensor, Tensor]] = []
        self._length = 0

    def get_seq_length(self, layer_idx: int = 0) -> int:
        """Columns held, padding included."""
        return self._length

    def update(self, keys: Tensor, values: Tensor, layer_idx: int, *_: object, **__: object) -> tuple[Tensor, Tensor]:
        """Appends (b, heads, n, d) and returns everything so far, as views."""
        start, end = self._length, self._length + keys.shape[2]
        if layer_idx == len(self._layers):
            self._layers.append((_buffer(keys, end), _buffer(values, end)))
        elif self._layers[layer_idx][0].shape[2] < end:
            self._layers[layer_idx] = tuple(_grown(old, end, start) for old in self._layers[layer_idx])  # type: ignore[assignment]
        held_keys, held_values = self._layers[layer_idx]
        held_keys[:, :, start:end] = keys
        held_values[:, :, start:end] = values
        return held_keys[:, :, :end], held_values[:, :, :end]

    def advance(self, columns: int) -> None:
        """The forward pass that appended `columns` to every layer is over."""
        self._length += columns

    def columns(self, row: int, attend: Tensor) -> Layers:
        """The keys and values of one row, without its padding."""
        at = attend.nonzero().flatten()
        return [(keys[row, :, at], values[row, :, at]) for keys, values in self._layers]

    @classmethod
    def join(cls, pasts: Sequence[Layers], device: torch.device) -> tuple[KVCache, Tensor]:
        """A cache of these rows' keys and values, left-padded, and the mask (b, n) of what is no padding."""
        cache, lengths = cls(), [past[0][0].shape[1] if past else 0 for past in pasts]
        cache._length = width = max(lengths)
        attend = torch.zeros(len(pasts), width, dtype=torch.bool, device=device)
        for row, length in enumerate(lengths):
            attend[row, width - length :] = True
        for layer in range(max(map(len, pasts))):
            like = next(past[layer][0] for past in pasts if past)[None].expand(len(pasts), -1, -1, -1)
            held = _buffer(like, width), _buffer(like, width)
            for row, past in enumerate(pasts):
                for new, old in zip(held, past[layer] if past else ()):
                    new[row, :, width - lengths[row] : width] = old
            cache._layers.append(held)
        return cache, attend

    def select(self, rows: Tensor) -> None:
        """Keeps only these rows, in this order; the old ones go layer by layer, so that no second cache is held."""
        for index, (keys, values) in enumerate(self._layers):
            self._layers[index] = keys[rows], values[rows]


def _buffer(like: Tensor, length: int) -> Tensor:
    b, heads, _, d = like.shape
    return torch.zeros(b, heads, _capacity(length), d, dtype=like.dtype, device=like.device)


def _grown(old: Tensor, length: int, used: int) -> Tensor:
    new = _buffer(old, length)
    new[:, :, :used] = old[:, :, :used]
    return new


def _capacity(length: int) -> int:
    # half as much again, so that growth copies a bounded number of times
    return max(128, length + length // 2)


def left_pad(blocks: Sequence[NDArray[np.int64]], device: torch.device) -> tuple[Tensor, Tensor]:
    """Left-padded ids (b, n) of ragged blocks, and the mask (b, n) of real tokens."""
    width = max(len(block) for block in blocks)
    ids = torch.zeros(len(blocks), width, dtype=torch.long)
    real = torch.zeros(len(blocks), width, dtype=torch.bool)
    for i, block in enumerate(blocks):
        ids[i, width - len(block) :] = torch.from_numpy(block)
        real[i, width - len(block) :] = True
    return ids.to(device), real.to(device)


def extend(
    chat: ChatVLM,
    cache: KVCache,
    attend: Tensor,
    ids: Tensor,
    positions: Tensor,
    pixels: Tensor | None = None,
    grids: Tensor | None = None,
) -> Tensor:
    """Forward pass over new columns (b, n), appended to the cache; returns the last one's hidden state (b, d).

    `attend` (b, past + n) is True on real tokens, the new columns included; `positions` (3, b, n) are rotary.
    """
    b, n = ids.shape
    # the last layer need not run where nobody reads its output
    last = torch.full((b, 1), n - 1, device=ids.device)
    hidden = chat.backbone(ids, attend, positions, () if pixels is None else pixels, grids, cache=cache, keep=last)
    cache.advance(n)
    return hidden[:, -1]
