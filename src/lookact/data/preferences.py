"""Preference buffer: pairs of segments and which is better, the oldest giving way when it is full.

Pairs with no verdict, and pairs of equals, are counted and not kept.
"""

from __future__ import annotations

import logging
from collections import Counter
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import ArrayLike, NDArray
from safetensors.torch import load_file, save_file
from torch import Tensor

from lookact.errors import DataError

logger = logging.getLogger(__name__)
COUNTS = ("pairs", "kept", "no_preference", "identical")


class PreferenceStore:
    """Up to `capacity` pairs of segments of `shape`, (t, s) or (t, h, w, 3)."""

    def __init__(self, *, capacity: int, shape: tuple[int, ...], dtype: torch.dtype = torch.float32) -> None:
        self.capacity = capacity
        self.counts: Counter[str] = Counter(dict.fromkeys(COUNTS, 0))
        """Pairs shown, and what became of them."""
        self._pairs = torch.zeros(capacity, 2, *shape, dtype=dtype)
        self._labels = torch.zeros(capacity)
        self._written = 0

    def __len__(self) -> int:
        return min(self._written, self.capacity)

    @property
    def first(self) -> Tensor:
        """(n, *shape)"""
        return self._pairs[: len(self), 0]

    @property
    def second(self) -> Tensor:
        """(n, *shape)"""
        return self._pairs[: len(self), 1]

    @property
    def labels(self) -> Tensor:
        """(n,) 0: the first is better, 1: the second, between: how sure."""
        return self._labels[: len(self)]

    def add(self, first: NDArray[Any], second: NDArray[Any], labels: ArrayLike) -> int:
        """Keep pairs (n, *shape) with labels (n,); -1 is no preference. Returns how many were kept."""
        given = np.asarray(labels, dtype=np.float32)
        if not (((given >= 0) & (given <= 1)) | (given == -1)).all():
            raise DataError(f"labels span {given.min()} to {given.max()}: give 0 to 1, or -1 for no preference")
        same = (first == second).all(axis=tuple(range(1, first.ndim)))
        kept = np.flatnonzero((given >= 0) & ~same)
        for index in kept:
            place = self._written % self.capacity
            self._pairs[place, 0] = torch.from_numpy(np.ascontiguousarray(first[index]))
            self._pairs[place, 1] = torch.from_numpy(np.ascontiguousarray(second[index]))
            self._labels[place] = float(given[index])
            self._written += 1
        self.counts.update(
            pairs=len(given),
            kept=len(kept),
            identical=int(same.sum()),
            no_preference=int(((given < 0) & ~same).sum()),
        )
        return len(kept)

    def state_dict(self) -> dict[str, Any]:
        n = len(self)
        return {
            "pairs": self._pairs[:n],
            "labels": self._labels[:n],
            "written": self._written,
            "counts": dict(self.counts),
        }

    def load_state_dict(self, state: dict[str, Any]) -> None:
        if state["pairs"].shape[1:] != self._pairs.shape[1:] or len(state["pairs"]) > self.capacity:
            raise DataError(
                f"preferences of shape {tuple(state['pairs'].shape)} do not fit {tuple(self._pairs.shape)}: "
                "they are of another run"
            )
        self._written, self.counts = state["written"], Counter(state["counts"])
        self._pairs[: len(self)], self._labels[: len(self)] = state["pairs"], state["labels"]


def save_labels(store: PreferenceStore, file: Path) -> None:
    """Write the labelled pairs, for later runs to start with."""
    kept = {"first": store.first, "second": store.second, "labels": store.labels}
    save_file({name: tensor.contiguous().clone() for name, tensor in kept.items()}, file)


def load_labels(store: PreferenceStore, file: Path) -> int:
    """Add the labelled pairs of an earlier run to the store; returns how many."""
    if not file.is_file():
        raise DataError(f"no labels at {file}: give the folder of a run that asked, or its {file.name}")
    held = load_file(file)
    if held["first"].shape[1:] != store.first.shape[1:]:
        raise DataError(
            f"{file} compares {tuple(held['first'].shape[1:])}, this run {tuple(store.first.shape[1:])}: "
            "it is of another task, reward input or segment length"
        )
    added = store.add(held["first"].numpy(), held["second"].numpy(), held["labels"].numpy())
    logger.info("%d labels were read from %s", added, file)
    return added
