"""What an off-policy agent learns from: a replay buffer whose transitions can all be relabelled, and preferences.

A transition is one row of a float table, so that a batch is one gather. Its frame, a small uint8 image, shows the
moment AFTER its action, as its next state does. `score` is the true reward, kept for reports and simulated teachers;
only `reward` is learned from.
"""

from __future__ import annotations

import logging
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

import numpy as np
import torch
from numpy.typing import ArrayLike, NDArray
from safetensors.torch import load_file, save_file
from torch import Tensor

from lookact.errors import DataError
from lookact.types import Image

logger = logging.getLogger(__name__)
Floats = NDArray[np.float32]
Array = NDArray[np.floating]
Feature = Literal["frame", "state"]
FILE = "replay.safetensors"
COUNTS = ("pairs", "kept", "no_preference", "identical")


@dataclass(frozen=True)
class Transitions:
    """A batch to learn from. A truncated step bootstraps like any other, so only `terminated` is told."""

    states: Tensor
    """(b, s)"""
    actions: Tensor
    """(b, a)"""
    next_states: Tensor
    """(b, s)"""
    rewards: Tensor
    """(b,)"""
    terminated: Tensor
    """(b,) bool."""


@dataclass(frozen=True)
class Slots:
    """Some slots of the ring as a reward function sees them."""

    states: Floats
    """(n, s)"""
    actions: Floats
    """(n, a)"""
    next_states: Floats
    """(n, s)"""
    frames: NDArray[np.uint8] | None
    """(n, h, w, 3), of the moment after the action."""
    scores: Floats
    """(n,) true rewards."""

    def features(self, kind: Feature) -> NDArray[Any]:
        """What a reward model of this kind reads, of the moment after the action."""
        if kind == "state":
            return self.next_states
        if self.frames is None:
            raise DataError("the replay holds no frames: give it a frame_shape, or learn the reward from states")
        return self.frames


class Replay:
    """A ring of `capacity` transitions; `nbytes` tells the memory it holds, from the first moment to the last."""

    def __init__(
        self, *, capacity: int, state_size: int, action_size: int, frame_shape: tuple[int, int, int] | None = None
    ) -> None:
        self.capacity, self.state_size, self.action_size = capacity, state_size, action_size
        self.size = 0
        """Filled slots."""
        self.head = 0
        """The slot that is written next."""
        self._inputs = state_size + action_size
        # state | action | next state | reward | terminated | truncated | score
        self._table = torch.zeros(capacity, self._inputs + state_size + 4)
        self._frames = None if frame_shape is None else torch.zeros(capacity, *frame_shape, dtype=torch.uint8)

    def __len__(self) -> int:
        return self.size

    @property
    def has_frames(self) -> bool:
        """Whether each transition has a frame."""
        return self._frames is not None

    @property
    def nbytes(self) -> int:
        """Bytes of all slots, filled or not."""
        return self._table.nbytes + (0 if self._frames is None else self._frames.nbytes)

    @property
    def rewards(self) -> Tensor:
        """(size,) in slot order."""
        return self._table[: self.size, -4]

    @property
    def ends(self) -> NDArray[np.bool_]:
        """(size,) whether a slot is its episode's last, by termination or truncation."""
        return (self._table[: self.size, -3:-1] > 0).any(dim=1).numpy()

    def add(
        self,
        state: Array,
        action: Array,
        reward: float,
        next_state: Array,
        terminated: bool,
        truncated: bool,
        *,
        frame: Image | None = None,
        score: float = 0.0,
    ) -> None:
        """Write one transition over the oldest."""
        if (frame is None) != (self._frames is None):
            raise DataError("a replay with frames needs one for each transition, and one without takes none")
        last = (reward, terminated, truncated, score)
        row = np.concatenate([state, action, next_state, last]).astype(np.float32)
        self._table[self.head] = torch.from_numpy(row)
        if self._frames is not None:
            self._frames[self.head] = torch.from_numpy(np.ascontiguousarray(frame))
        self.head = (self.head + 1) % self.capacity
        self.size = min(self.size + 1, self.capacity)

    def sample(self, rows: int, generator: torch.Generator, *, device: torch.device | str = "cpu") -> Transitions:
        """`rows` transitions on `device`, each drawn evenly from all."""
        if not self.size:
            raise DataError("the replay is empty: act before learning")
        drawn = self._table.index_select(0, torch.randint(self.size, (rows,), generator=generator)).to(device)
        return Transitions(
            states=drawn[:, : self.state_size],
            actions=drawn[:, self.state_size : self._inputs],
            next_states=drawn[:, self._inputs : self._inputs + self.state_size],
            rewards=drawn[:, -4],
            terminated=drawn[:, -3] > 0,
        )

    def slots(self, indices: NDArray[np.int64]) -> Slots:
        """What stands in these slots (n,), copied."""
        chosen = torch.from_numpy(np.asarray(indices, dtype=np.int64))
        rows = self._table[chosen].numpy()
        return Slots(
            states=rows[:, : self.state_size],
            actions=rows[:, self.state_size : self._inputs],
            next_states=rows[:, self._inputs : self._inputs + self.state_size],
            frames=None if self._frames is None else self._frames[chosen].numpy(),
            scores=rows[:, -1],
        )

    def features(self, slots: NDArray[np.int64], kind: Feature) -> NDArray[Any]:
        """What a reward model reads (..., features) of slots (...)."""
        read = self.slots(slots.reshape(-1)).features(kind)
        return read.reshape(*slots.shape, *read.shape[1:])

    def relabel(self, reward_of: Callable[[Slots], Floats], *, chunk: int = 4096) -> None:
        """Give every filled slot the reward (n,) that the function finds for it, however often the ring has wrapped."""
        for start in range(0, self.size, chunk):
            indices = np.arange(start, min(start + chunk, self.size))
            rewards = np.asarray(reward_of(self.slots(indices)), dtype=np.float32)
            if rewards.shape != indices.shape:
                raise DataError(f"rewards of shape {rewards.shape} for {len(indices)} slots: give one for each")
            self._table[start : start + len(indices), -4] = torch.from_numpy(rewards)

    def segment_starts(self, length: int) -> NDArray[np.int64]:
        """Slots from which `length` steps of one episode follow, oldest first; never across the ring's seam."""
        oldest = self.head if self.size == self.capacity else 0
        order = (oldest + np.arange(self.size)) % self.capacity
        ended = np.concatenate([[0], np.cumsum(self.ends[order])])
        starts = np.arange(max(0, self.size - length + 1))
        # no episode may end before a segment's last step
        whole = ended[starts + length - 1] == ended[starts]
        found: NDArray[np.int64] = order[starts[whole]]
        return found

    def segments(self, starts: NDArray[np.int64], length: int) -> NDArray[np.int64]:
        """The slots (..., length) of segments that begin at `starts` (...)."""
        slots: NDArray[np.int64] = (starts[..., None] + np.arange(length)) % self.capacity
        return slots

    def state_dict(self) -> dict[str, Tensor]:
        """All that is filled, and where writing goes on; tensors that share the ring's memory."""
        state = {"head": torch.tensor(self.head), "table": self._table[: self.size]}
        return state if self._frames is None else {**state, "frames": self._frames[: self.size]}

    def load_state_dict(self, state: dict[str, Tensor]) -> None:
        """Go on as the replay that gave `state`; one made otherwise is refused."""
        table, frames = state["table"], state.get("frames")
        same = table.shape[1:] == self._table.shape[1:] and (frames is None) == (self._frames is None)
        if frames is not None and self._frames is not None:
            same = same and frames.shape[1:] == self._frames.shape[1:]
        if not same or len(table) > self.capacity or int(state["head"]) >= self.capacity:
            raise DataError(
                f"a replay of {len(table)} rows of {table.shape[1]} numbers does not fit: it is of another run"
            )
        self.size, self.head = len(table), int(state["head"])
        self._table[: self.size] = table
        if self._frames is not None and frames is not None:
            self._frames[: self.size] = frames

    def write(self, folder: Path) -> None:
        """Write it as safetensors, as a checkpoint's `weights` may be."""
        folder.mkdir(parents=True, exist_ok=True)
        save_file(self.state_dict(), folder / FILE)

    def read(self, folder: Path) -> None:
        """Read what `write` wrote."""
        if not (folder / FILE).is_file():
            raise DataError(f"{folder} holds no {FILE}: it is of another run")
        self.load_state_dict(load_file(folder / FILE))


class PreferenceStore:
    """Up to `capacity` labelled pairs of segments of `shape`, (t, s) or (t, h, w, 3), the oldest giving way.

    Pairs with no preference, and pairs of equals, are counted and not kept.
    """

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
