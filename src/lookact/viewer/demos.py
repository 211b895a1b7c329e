"""Demonstrations in LeRobot folders."""

from __future__ import annotations

import json
from functools import lru_cache
from pathlib import Path
from typing import TYPE_CHECKING

from lookact.errors import DataError
from lookact.viewer.places import LEROBOT
from lookact.viewer.plain import read_json
from lookact.viewer.steps import Row, list_one

if TYPE_CHECKING:
    from lookact.data.lerobot.read import Demonstration


def holds(folder: Path) -> bool:
    """Whether a folder is a LeRobot dataset."""
    return (folder / LEROBOT).is_file()


def count(folder: Path) -> int:
    """How many episodes a dataset says it has."""
    info = read_json(folder / LEROBOT)
    total = info.get("total_episodes") if isinstance(info, dict) else None
    return total if isinstance(total, int) else 0


def rows(folder: Path) -> list[Row]:
    """One line a demonstration; none where the dataset cannot be read."""
    from lookact.data.lerobot.read import read_rows

    try:
        check(folder)
        found = read_rows(folder)
    except DataError:
        return []
    return [
        list_one(
            str(row["episode_index"]), int(row["length"]), str((row.get("tasks") or [""])[0]), ended="demonstration"
        )
        for row in found
    ]


def load(folder: Path, id: str) -> Demonstration:
    """One demonstration of a dataset that keeps to its own folder. Raises DataError."""
    check(folder)
    return _load(folder, int(id), (folder / LEROBOT).stat().st_mtime_ns)


def check(folder: Path) -> None:
    """Raise DataError for a dataset whose description or links lead out of its folder."""
    info = read_json(folder / LEROBOT)
    paths = [str(info.get(name, "")) for name in ("data_path", "video_path")] if isinstance(info, dict) else ["/"]
    leads_out = ".." in json.dumps(info) or any(path.startswith("/") for path in paths)
    if leads_out or any(path.is_symlink() for path in folder.rglob("*")):
        raise DataError("this dataset leads out of its folder: copy it whole")


@lru_cache(maxsize=4)
def _load(folder: Path, number: int, changed: int) -> Demonstration:
    from lookact.data.lerobot.read import read_demonstrations

    for demo in read_demonstrations(folder, only=number):
        return demo
    raise DataError(f"no episode {number} in this dataset")
