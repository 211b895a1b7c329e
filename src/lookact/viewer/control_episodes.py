"""Episodes of action vectors: demonstrations in LeRobot folders, and world-duel's recordings (files of arrays)."""

from __future__ import annotations

import json
import stat
import zipfile
from functools import lru_cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from lookact.errors import DataError
from lookact.viewer.folder import LEROBOT, check_file, is_file, is_lerobot, is_recording, read_json

if TYPE_CHECKING:
    from lookact.data.lerobot.read import Demonstration
    from lookact.data.sequences import Recording

Row = dict[str, Any]
DIGITS = 4
MAX_UNPACKED = 4 << 30
"""Bytes that the arrays of one recording may take."""
BROKEN = (OSError, ValueError, KeyError, EOFError, MemoryError, zipfile.BadZipFile)


class LeRobotEpisodes:
    """A LeRobot dataset's demonstrations."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    def count(self) -> int:
        """How many episodes the dataset says it has."""
        info = read_json(self.folder / LEROBOT)
        total = info.get("total_episodes") if isinstance(info, dict) else None
        return total if isinstance(total, int) else 0

    def rows(self) -> list[Row]:
        """One line a demonstration; none where the dataset cannot be read."""
        from lookact.data.lerobot.read import read_rows

        try:
            self._check()
            found = read_rows(self.folder)
            return [
                episode_row(
                    str(row["episode_index"]), int(row["length"]), str((row.get("tasks") or [""])[0]), "demonstration"
                )
                for row in found
            ]
        except (DataError, *BROKEN):
            return []

    def load(self, id: str) -> Demonstration:
        """One demonstration of a dataset that keeps to its own folder. Raises DataError."""
        self._check()
        return _demonstration(self.folder, int(id), check_file(self.folder / LEROBOT).st_mtime_ns)

    def _check(self) -> None:
        """Raise DataError for a dataset whose description, links or special files lead out of its folder."""
        info = read_json(self.folder / LEROBOT)
        paths = [str(info.get(name, "")) for name in ("data_path", "video_path")] if isinstance(info, dict) else ["/"]
        leads_out = ".." in json.dumps(info) or any(path.startswith("/") for path in paths)
        kinds = (path.lstat().st_mode for path in self.folder.rglob("*"))
        if leads_out or not all(stat.S_ISREG(mode) or stat.S_ISDIR(mode) for mode in kinds):
            raise DataError("this dataset leads out of its folder: copy it whole")


class RecordedEpisodes:
    """The episodes of a folder of recordings, many to a file."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    def files(self) -> list[Path]:
        return sorted(path for path in self.folder.glob("*.npz") if is_recording(path.name) and is_file(path))

    def count(self) -> int:
        return len(self.rows())

    def rows(self) -> list[Row]:
        """One line an episode, file by file; a file that cannot be read is left out."""
        return [row for path in self.files() for row in _recorded_rows(path, path.stat().st_mtime_ns)]

    def load(self, id: str) -> Demonstration:
        """The episode `FILE.ROW`. Raises DataError."""
        from lookact.data.lerobot.read import Demonstration

        stem, _, row = id.rpartition(".")
        path = next((path for path in self.files() if path.stem == stem), None)
        held = _recording(path, path.stat().st_mtime_ns) if path and row.isdigit() else None
        if held is None or int(row) >= len(held.actions):
            raise DataError(f"no episode {id} in this folder")
        at, steps = int(row), int(held.mask[int(row)].sum())
        frames = {"wrist": held.wrist[at, :steps], "head": held.head[at, :steps]}
        return Demonstration(str(held.texts[at]), frames, held.state[at, :steps], held.actions[at, :steps])


def control_episodes(folder: Path) -> LeRobotEpisodes | RecordedEpisodes | None:
    """The reader of a folder of control episodes; None for one in LookAct's own format."""
    if is_lerobot(folder):
        return LeRobotEpisodes(folder)
    recorded = RecordedEpisodes(folder)
    return recorded if recorded.files() else None


def episode_row(id: str, length: int, task: str, ended: str) -> Row:
    """An episode's line in the list; what only chat episodes have is None."""
    known = {"question": task, "group": None, "seed": None, "policy_version": None, "error": None, "is_valid": True}
    rest = {"return": None, "dropout_reason": None, "scene_id": None, "success": None, "acts": "vectors"}
    return {"id": id, "length": length, "ended": ended, **rest, **known}


def control_detail(row: Row, demo: Demonstration) -> Row:
    """An episode step by step: observation and action, with neither words nor reward."""
    cameras = [
        {"name": name, "height": frames.shape[1], "width": frames.shape[2]} for name, frames in demo.images.items()
    ]
    turns: list[Row] = [
        {
            **{"text": demo.task, "cameras": cameras, "reply": None, "pieces": [], "reward": None, "info": {}},
            "state": [round(float(value), DIGITS) for value in state],
            "action": [round(float(value), DIGITS) for value in action],
        }
        for state, action in zip(demo.states, demo.actions)
    ]
    return {**row, "turns": turns, "last": None, "map": None, "problem": None}


@lru_cache(maxsize=4)
def _demonstration(folder: Path, number: int, changed: int) -> Demonstration:
    from lookact.data.lerobot.read import read_demonstrations

    for demo in read_demonstrations(folder, only=number):
        return demo
    raise DataError(f"no episode {number} in this dataset")


@lru_cache(maxsize=256)
def _recorded_rows(path: Path, changed: int) -> list[Row]:
    try:
        _check_unpacked(path)
        with np.load(path, allow_pickle=False) as parts:
            # the frames stay where they are: only what is asked for is read
            texts, counts = parts["texts"], parts["mask" if "mask" in parts else "counts"]
        lengths = counts.sum(axis=1)
    except BROKEN:
        return []
    return [
        episode_row(f"{path.stem}.{row}", int(length), str(text), "broken" if length < counts.shape[1] else "recorded")
        for row, (text, length) in enumerate(zip(texts, lengths))
    ]


@lru_cache(maxsize=2)
def _recording(path: Path, changed: int) -> Recording:
    from lookact.data.sequences import load_recording

    try:
        _check_unpacked(path)
        return load_recording(path)
    except BROKEN as error:
        raise DataError(f"{path.name} cannot be read: {error}") from None


def _check_unpacked(path: Path) -> None:
    with zipfile.ZipFile(path) as archive:
        if sum(part.file_size for part in archive.infolist()) > MAX_UNPACKED:
            raise ValueError(f"{path.name} unpacks to more than {MAX_UNPACKED >> 30} GiB")
