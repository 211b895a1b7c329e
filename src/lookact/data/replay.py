"""What an off-policy agent learns from: a replay buffer whose transitions can all be relabelled.

A transition is one row of a float table, so that a batch is one gather. Its frame, a small uint8 image, shows the
moment AFTER its action, as its next state does; so does its picture, a larger image for a judge, kept as an encoded
file. `score` is the true reward, kept for reports and simulated teachers; only `reward` is learned from.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

import numpy as np
import torch
from numpy.typing import NDArray
from safetensors.torch import load_file, save_file
from torch import Tensor

from lookact.data.pictures import encode_jpeg, resize
from lookact.errors import DataError
from lookact.types import Image

Floats = NDArray[np.float32]
Array = NDArray[np.floating]
Feature = Literal["frame", "state"]
FILE = "replay.safetensors"


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
        self,
        *,
        capacity: int,
        state_size: int,
        action_size: int,
        frame_shape: tuple[int, int, int] | None = None,
        pictures: bool = False,
        pinned: bool = False,
    ) -> None:
        """`pinned` frames lie in page-locked memory, from which a GPU reads faster."""
        self.capacity, self.state_size, self.action_size = capacity, state_size, action_size
        self.size = 0
        """Filled slots."""
        self.head = 0
        """The slot that is written next."""
        self._inputs = state_size + action_size
        # state | action | next state | reward | terminated | truncated | score
        self._table = torch.zeros(capacity, self._inputs + state_size + 4)
        shape = None if frame_shape is None else (capacity, *frame_shape)
        self._frames = None if shape is None else torch.zeros(shape, dtype=torch.uint8, pin_memory=pinned)
        self._pictures = [b""] * capacity if pictures else None

    def __len__(self) -> int:
        return self.size

    @property
    def has_frames(self) -> bool:
        """Whether each transition has a frame."""
        return self._frames is not None

    @property
    def has_pictures(self) -> bool:
        """Whether each transition has a picture for a judge."""
        return self._pictures is not None

    @property
    def nbytes(self) -> int:
        """Bytes of all slots, filled or not, pictures aside."""
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
        picture: bytes | None = None,
        score: float = 0.0,
    ) -> None:
        """Write one transition over the oldest."""
        if (frame is None) != (self._frames is None) or (picture is None) != (self._pictures is None):
            raise DataError(
                "a replay with frames or pictures needs one for each transition, and one without takes none"
            )
        last = (reward, terminated, truncated, score)
        row = np.concatenate([state, action, next_state, last]).astype(np.float32)
        self._table[self.head] = torch.from_numpy(row)
        if self._frames is not None:
            self._frames[self.head] = torch.from_numpy(np.ascontiguousarray(frame))
        if self._pictures is not None and picture is not None:
            self._pictures[self.head] = picture
        self.head = (self.head + 1) % self.capacity
        self.size = min(self.size + 1, self.capacity)

    def images(self, image: Image | None) -> tuple[Image | None, bytes | None]:
        """What `add` takes of a rendered image: a frame at the replay's own size, a picture; None where not kept."""
        if image is None:
            return None, None
        frame = None
        if self._frames is not None:
            height, width = self._frames.shape[1:3]
            frame = image if image.shape[:2] == (height, width) else resize(image, width, height)
        return frame, encode_jpeg(image) if self._pictures is not None else None

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
        return self._slots(torch.from_numpy(np.asarray(indices, dtype=np.int64)))

    def _slots(self, chosen: Tensor | slice) -> Slots:
        rows = self._table[chosen].numpy()
        return Slots(
            states=rows[:, : self.state_size],
            actions=rows[:, self.state_size : self._inputs],
            next_states=rows[:, self._inputs : self._inputs + self.state_size],
            frames=None if self._frames is None else self._frames[chosen].numpy(),
            scores=rows[:, -1],
        )

    def pictures(self, indices: NDArray[np.int64]) -> list[bytes]:
        """The encoded pictures of these slots (n,)."""
        if self._pictures is None:
            raise DataError("the replay holds no pictures: it was made without")
        return [self._pictures[index] for index in indices]

    def feature_shape(self, kind: Feature) -> tuple[int, ...]:
        """Of what a reward model reads of one step."""
        return (self.state_size,) if kind == "state" else tuple(self._slots(slice(0, 0)).features(kind).shape[1:])

    def features(self, slots: NDArray[np.int64], kind: Feature) -> NDArray[Any]:
        """What a reward model reads (..., features) of slots (...)."""
        read = self.slots(slots.reshape(-1)).features(kind)
        return read.reshape(*slots.shape, *read.shape[1:])

    def relabel(self, reward_of: Callable[[Slots], Floats], *, chunk: int = 4096) -> None:
        """Give every filled slot the reward (n,) that the function finds for it, however often the ring has wrapped."""
        for start in range(0, self.size, chunk):
            # a slice is a view: pinned frames go to the GPU as they lie
            part = slice(start, min(start + chunk, self.size))
            rewards = np.asarray(reward_of(self._slots(part)), dtype=np.float32)
            if rewards.shape != (part.stop - start,):
                raise DataError(f"rewards of shape {rewards.shape} for {part.stop - start} slots: give one for each")
            self._table[part, -4] = torch.from_numpy(rewards)

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
        if self._frames is not None:
            state["frames"] = self._frames[: self.size]
        if self._pictures is not None:
            files = self._pictures[: self.size]
            state["picture_sizes"] = torch.tensor([len(file) for file in files], dtype=torch.int64)
            state["pictures"] = torch.frombuffer(bytearray(b"".join(files)) or bytearray(1), dtype=torch.uint8)
        return state

    def load_state_dict(self, state: dict[str, Tensor]) -> None:
        """Go on as the replay that gave `state`; one made otherwise is refused."""
        table, frames = state["table"], state.get("frames")
        same = table.shape[1:] == self._table.shape[1:] and (frames is None) == (self._frames is None)
        same = same and ("pictures" in state) == self.has_pictures
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
        if self._pictures is not None:
            ends = np.cumsum(state["picture_sizes"].numpy())
            files = np.split(state["pictures"].numpy(), ends)[: self.size]
            self._pictures[: self.size] = [file.tobytes() for file in files]

    def write(self, folder: Path) -> None:
        """Write it as safetensors, as a checkpoint's `weights` may be."""
        folder.mkdir(parents=True, exist_ok=True)
        save_file(self.state_dict(), folder / FILE)

    def read(self, folder: Path) -> None:
        """Read what `write` wrote."""
        if not (folder / FILE).is_file():
            raise DataError(f"{folder} holds no {FILE}: it is of another run")
        self.load_state_dict(load_file(folder / FILE))
