"""Batches of episodes of equal length, (b, t, ...): recordings hold frames, token sequences hold their VQ ids."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, fields, replace
from pathlib import Path
from typing import Any
from zipfile import BadZipFile

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from lookact.errors import DataError


@dataclass(frozen=True)
class Recording:
    """Observations and actions of b environments over t steps."""

    wrist: NDArray[np.uint8]
    """(b, t + 1, h, w, 3), as is head."""
    head: NDArray[np.uint8]
    state: NDArray[np.float32]
    """(b, t + 1, s)"""
    actions: NDArray[np.float32]
    """(b, t, a)"""
    texts: NDArray[np.str_]
    """(b,) instructions."""
    mask: NDArray[np.bool_]
    """(b, t) False on steps that did not happen, because the environment failed."""

    def save(self, path: Path) -> None:
        """Write all of it, or nothing, to an npz file."""
        path.parent.mkdir(parents=True, exist_ok=True)
        temporary = path.with_name(f".tmp-{path.name}")
        parts: dict[str, Any] = {field.name: getattr(self, field.name) for field in fields(self)}
        np.savez(temporary, **parts)
        temporary.replace(path)


def load_recording(path: Path) -> Recording:
    """The recording that an npz file holds."""
    try:
        with np.load(path, allow_pickle=False) as parts:
            # recordings of version 0.1 name the mask `counts`
            names = {field.name: field.name for field in fields(Recording)}
            names |= {"mask": "counts"} if "counts" in parts else {}
            return Recording(**{name: parts[stored] for name, stored in names.items()})
    except (OSError, ValueError, KeyError, BadZipFile) as error:
        raise DataError(f"{path} is no whole recording: remove it, it is made again ({error})") from error


@dataclass(frozen=True)
class TokenSequences:
    """Recordings with VQ ids in place of frames, small enough to keep by the thousand."""

    wrist: Tensor
    """(b, t + 1, n) ids, as is head."""
    head: Tensor
    head_seen: Tensor
    """(b,) False where there is no head camera."""
    state: Tensor
    """(b, t + 1, s)"""
    actions: Tensor
    """(b, t, a)"""
    text_ids: Tensor
    """(b, l)"""
    mask: Tensor
    """(b, t)"""

    def __len__(self) -> int:
        return len(self.actions)

    def __getitem__(self, rows: slice | Tensor | list[int]) -> TokenSequences:
        return TokenSequences(*(getattr(self, field.name)[rows] for field in fields(self)))

    @property
    def steps(self) -> int:
        return self.actions.shape[1]

    def first_steps(self, steps: int) -> TokenSequences:
        """The steps before `steps`, and the frame after the last of them."""
        later = {name: getattr(self, name)[:, : steps + 1] for name in ("wrist", "head", "state")}
        return replace(self, **later, actions=self.actions[:, :steps], mask=self.mask[:, :steps])


def concat(parts: Sequence[TokenSequences]) -> TokenSequences:
    """The rows of all of them."""
    return TokenSequences(
        *(torch.cat([getattr(part, field.name) for part in parts]) for field in fields(TokenSequences))
    )


class SequenceReplay:
    """Replay buffer of the token sequences of the last `capacity` additions."""

    def __init__(self, capacity: int) -> None:
        self.capacity = capacity
        self.parts: list[TokenSequences] = []

    def add(self, sequences: TokenSequences) -> None:
        self.parts = [*self.parts, sequences][-self.capacity :]

    def all(self) -> TokenSequences:
        """All sequences, the oldest first."""
        if not self.parts:
            raise DataError("the replay buffer is empty: add sequences first")
        return concat(self.parts)

    def state_dict(self) -> dict[str, Any]:
        return {"parts": [{field.name: getattr(part, field.name) for field in fields(part)} for part in self.parts]}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        self.parts = [TokenSequences(**part) for part in state["parts"]]


def stack_history(frames: Tensor, actions: Tensor, times: Tensor, *, length: int, stride: int) -> tuple[Tensor, Tensor]:
    """Frame and action histories: at each of `times` (k,) the last `length` (frame, action) pairs, `stride` apart.

    frames: (b, t + 1, ...) to (b, k, length, ...); actions: (b, t, a) to (b, k, length, a); the newest pair is the
    frame of that time and the action taken on it. Before an episode's first step stand its first frame and zeros.
    """
    steps = times[:, None] - stride * torch.arange(length - 1, -1, -1)
    before = steps < 0
    known = steps.clamp(min=0)
    return frames[:, known], actions[:, known].masked_fill(before[None, :, :, None], 0.0)
