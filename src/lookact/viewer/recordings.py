"""What world-duel records: files of arrays that hold many episodes each."""

from __future__ import annotations

import zipfile
from functools import lru_cache
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from lookact.errors import DataError
from lookact.viewer.places import is_recording
from lookact.viewer.steps import Row, list_one

if TYPE_CHECKING:
    from lookact.data.lerobot.read import Demonstration
    from lookact.data.sequences import Recording

BROKEN = (OSError, ValueError, KeyError, zipfile.BadZipFile)


def holds(folder: Path) -> bool:
    """Whether a folder has recordings."""
    return any(_files(folder))


def count(folder: Path) -> int:
    """How many episodes its recordings hold."""
    return len(rows(folder))


def rows(folder: Path) -> list[Row]:
    """One line an episode, file by file; a file that cannot be read is left out."""
    return [row for path in _files(folder) for row in _rows(path, path.stat().st_mtime_ns)]


def load(folder: Path, id: str) -> Demonstration:
    """The episode `FILE.ROW`. Raises DataError."""
    from lookact.data.lerobot.read import Demonstration

    stem, _, row = id.rpartition(".")
    path = next((path for path in _files(folder) if path.stem == stem), None)
    if path is None or not row.isdigit():
        raise DataError(f"no episode {id} in this folder")
    held, place = _load(path, path.stat().st_mtime_ns), int(row)
    if place >= len(held.actions):
        raise DataError(f"no episode {id} in this folder")
    steps = int(held.counts[place].sum())
    frames = {"wrist": held.wrist[place, :steps], "head": held.head[place, :steps]}
    return Demonstration(str(held.texts[place]), frames, held.state[place, :steps], held.actions[place, :steps])


def _files(folder: Path) -> list[Path]:
    return sorted(path for path in folder.glob("*.npz") if is_recording(path.name) and not path.is_symlink())


@lru_cache(maxsize=256)
def _rows(path: Path, changed: int) -> list[Row]:
    try:
        with np.load(path, allow_pickle=False) as parts:
            # the frames stay where they are: only what is asked for is read
            texts, counts = parts["texts"], parts["counts"]
    except BROKEN:
        return []
    lengths = counts.sum(axis=1)
    return [
        list_one(
            f"{path.stem}.{row}", int(length), str(text), ended="broken" if length < counts.shape[1] else "recorded"
        )
        for row, (text, length) in enumerate(zip(texts, lengths))
    ]


@lru_cache(maxsize=2)
def _load(path: Path, changed: int) -> Recording:
    from lookact.data.sequences import load_recording

    return load_recording(path)
