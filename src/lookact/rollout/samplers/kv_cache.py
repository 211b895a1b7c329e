"""Keys and values of many conversations, kept across turns in buffers that are written in place.

Appending to a growing tensor copies the whole past at every token; here a token costs its own size.
"""

from __future__ import annotations

import torch
from torch import Tensor


class TurnCache:
    """What a Hugging Face attention layer needs of a cache: `update` for every layer, in order."""

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

    def select(self, rows: Tensor) -> None:
        """Keeps only these rows, in this order."""
        self._layers = [(keys[rows], values[rows]) for keys, values in self._layers]


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
