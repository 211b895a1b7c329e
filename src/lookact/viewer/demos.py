"""Demonstrations in LeRobot folders, as the records that the player of episodes shows."""

from __future__ import annotations

import json
from functools import lru_cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

from lookact.errors import DataError
from lookact.viewer.places import LEROBOT
from lookact.viewer.plain import read_json

if TYPE_CHECKING:
    from lookact.data.lerobot import Demonstration

Row = dict[str, Any]
DIGITS = 4


def is_demos(folder: Path) -> bool:
    """Whether a folder is a LeRobot dataset."""
    return (folder / LEROBOT).is_file()


def count_demos(folder: Path) -> int:
    """How many episodes a dataset says it has."""
    info = read_json(folder / LEROBOT)
    total = info.get("total_episodes") if isinstance(info, dict) else None
    return total if isinstance(total, int) else 0


def list_demos(folder: Path) -> list[Row]:
    """One line a demonstration; none where the dataset cannot be read."""
    from lookact.data.lerobot import read_rows

    try:
        check(folder)
        rows = read_rows(folder)
    except DataError:
        return []
    return [_listed(row) for row in rows]


def demo_detail(folder: Path, row: Row) -> Row:
    """A demonstration step by step: what was seen and done, with neither words nor reward. Raises DataError."""
    demo = load_demo(folder, int(row["id"]))
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
    return {**row, "turns": turns, "last": None, "problem": None}


def load_demo(folder: Path, number: int) -> Demonstration:
    """One demonstration of a dataset that keeps to its own folder. Raises DataError."""
    check(folder)
    return _load(folder, number, (folder / LEROBOT).stat().st_mtime_ns)


def check(folder: Path) -> None:
    """Raise DataError for a dataset whose description or links lead out of its folder."""
    info = read_json(folder / LEROBOT)
    paths = [str(info.get(name, "")) for name in ("data_path", "video_path")] if isinstance(info, dict) else ["/"]
    leads_out = ".." in json.dumps(info) or any(path.startswith("/") for path in paths)
    if leads_out or any(path.is_symlink() for path in folder.rglob("*")):
        raise DataError("this dataset leads out of its folder: copy it whole")


@lru_cache(maxsize=4)
def _load(folder: Path, number: int, changed: int) -> Demonstration:
    from lookact.data.lerobot import read_demonstrations

    for demo in read_demonstrations(folder, only=number):
        return demo
    raise DataError(f"no episode {number} in this dataset")


def _listed(row: Row) -> Row:
    task = str((row.get("tasks") or [""])[0])
    known = {"question": task, "group": None, "seed": None, "policy_version": None, "error": None, "is_valid": True}
    ended = {"return": None, "ended": "demonstration", "dropout_reason": None, "scene_id": None}
    return {"id": str(row["episode_index"]), "length": int(row["length"]), **ended, **known}
