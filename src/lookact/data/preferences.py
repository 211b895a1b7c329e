"""Labelled pairs that a reward is fitted to, in memory and on the disk: one file a feedback round, written once."""

from __future__ import annotations

import logging
import os
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
    """Up to `capacity` labelled pairs of segments of `shape`, (t, s) or (t, h, w, 3), the oldest giving way.

    Pairs with no preference, and pairs of equals, are counted and not kept. With a `folder`, what each `add` keeps is a
    file there, and a checkpoint holds only how many files there are: pairs of frames take gigabytes.
    """

    def __init__(
        self,
        *,
        capacity: int,
        shape: tuple[int, ...],
        dtype: torch.dtype = torch.float32,
        folder: Path | None = None,
    ) -> None:
        self.capacity, self.folder = capacity, folder
        self.counts: Counter[str] = Counter(dict.fromkeys(COUNTS, 0))
        """Pairs shown, and what became of them."""
        self._pairs = torch.zeros(capacity, 2, *shape, dtype=dtype)
        self._labels = torch.zeros(capacity)
        self._written, self._files = 0, 0

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
        chosen = [torch.from_numpy(np.ascontiguousarray(part[kept])) for part in (first, second, given)]
        self._append(*chosen)
        if self.folder is not None and len(kept):
            save_pairs(self._file(self._files), *chosen)
            self._files += 1
        self.counts.update(
            pairs=len(given),
            kept=len(kept),
            identical=int(same.sum()),
            no_preference=int(((given < 0) & ~same).sum()),
        )
        return len(kept)

    def state_dict(self) -> dict[str, Any]:
        state = {"files": self._files, "written": self._written, "counts": dict(self.counts)}
        if self.folder is not None:
            return state
        # copies: a view would be written with all of the memory behind it
        return {**state, "pairs": self._pairs[: len(self)].clone(), "labels": self.labels.clone()}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        self._written, self._files = 0, state["files"]
        if self.folder is not None:
            for number in range(self._files):
                self._append(*load_pairs(self._file(number)))
        else:
            self._append(state["pairs"][:, 0], state["pairs"][:, 1], state["labels"])
        self._written, self.counts = state["written"], Counter(state["counts"])

    def _append(self, first: Tensor, second: Tensor, labels: Tensor) -> None:
        if first.shape[1:] != self._pairs.shape[2:]:
            raise DataError(
                f"pairs of {tuple(first.shape[1:])} do not fit {tuple(self._pairs.shape[2:])}: they are of another run"
            )
        # of more than there is room for, the last
        last = torch.arange(max(0, len(labels) - self.capacity), len(labels))
        places = (self._written + last) % self.capacity
        self._pairs[places, 0], self._pairs[places, 1] = first[last], second[last]
        self._labels[places] = labels[last]
        self._written += len(labels)

    def _file(self, number: int) -> Path:
        assert self.folder is not None
        return self.folder / f"{number:05d}.safetensors"


def save_pairs(file: Path, first: Tensor, second: Tensor, labels: Tensor) -> None:
    """Write labelled pairs, whole or not at all."""
    file.parent.mkdir(parents=True, exist_ok=True)
    temporary = file.with_name(f".{file.name}-{os.getpid()}")
    save_file({"first": first, "second": second, "labels": labels}, temporary)
    temporary.replace(file)


def load_pairs(file: Path) -> tuple[Tensor, Tensor, Tensor]:
    """What `save_pairs` wrote."""
    if not file.is_file():
        raise DataError(f"no labels at {file}: give the folder of a run that asked, or its labels")
    held = load_file(file)
    return held["first"], held["second"], held["labels"]


def load_labels(store: PreferenceStore, path: Path) -> int:
    """Add the labelled pairs of an earlier run, a file or a folder of them, to the store; returns how many."""
    files = sorted(path.glob("*.safetensors")) if path.is_dir() else [path]
    added = 0
    for first, second, labels in map(load_pairs, files):
        if first.shape[1:] != store.first.shape[1:]:
            raise DataError(
                f"{path} compares {tuple(first.shape[1:])}, this run {tuple(store.first.shape[1:])}: "
                "it is of another task, reward input or segment length"
            )
        added += store.add(first.numpy(), second.numpy(), labels.numpy())
    logger.info("%d labels were read from %s", added, path)
    return added
