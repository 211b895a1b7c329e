"""Where things lie below the viewed folder, and the one door to them: nothing outside is ever opened."""

from __future__ import annotations

import os
import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path, PurePosixPath

from lookact.data.jsonl import MANIFEST
from lookact.errors import DataError
from lookact.training.run_files import CONFIG, LOG, METRICS

LEROBOT = "meta/info.json"
"""What a folder of demonstrations in LeRobot's format holds."""
RECORDING = re.compile(r"(\w+)-\d{4}\.npz")
"""A file of episodes that world-duel recorded."""
STEP = re.compile(r"step-(\d+)")
DEPTH = 5
"""Folders are looked for this far down: RUNS/RECIPE/RUN/episodes/EVALUATION, also from the folder around them."""


class NotHere(Exception):
    """What was asked for is not in the viewed folder, or leads out of it."""


@dataclass(frozen=True)
class Found:
    """Runs and folders of episodes below a folder, as paths relative to it; `.` is the folder itself."""

    runs: tuple[str, ...]
    stores: tuple[str, ...]


def open_folder(folder: Path) -> Path:
    """The folder to view, in full. Raises DataError if there is none."""
    if not folder.is_dir():
        raise DataError(f"{folder} is no folder: train first (lookact train nav-rloo --preset debug), or name another")
    return folder.resolve()


def inside(root: Path, place: str) -> Path:
    """The path of something that exists below `root`; `..`, absolute paths and links raise NotHere."""
    parts = PurePosixPath(place).parts
    if "\0" in place or ".." in parts or place.startswith("/"):
        raise NotHere(place)
    path = root
    for part in parts:
        path = path / part
        if path.is_symlink():
            raise NotHere(place)
    if not path.exists():
        raise NotHere(place)
    return path


def find(root: Path) -> Found:
    """Every run and every folder of episodes; links are not followed."""
    runs, stores = [], []
    for folder, names in _walk(root):
        place = folder.relative_to(root).as_posix()
        if METRICS in names or {CONFIG, LOG} <= names:
            runs.append(place)
        if MANIFEST in names or (folder / LEROBOT).is_file() or any(map(is_recording, names)):
            stores.append(place)
    # a run's own phases keep metrics too: they belong to it
    outer = [run for run in runs if not any(contains(other, run) for other in runs)]
    return Found(tuple(outer), tuple(stores))


def is_recording(name: str) -> bool:
    """Whether a file is named as recordings are."""
    return RECORDING.fullmatch(name) is not None


def contains(outer: str, inner: str) -> bool:
    """Whether one relative path lies below another."""
    return outer != inner and (outer == "." or inner.startswith(f"{outer}/"))


def loose_stores(found: Found) -> list[str]:
    """Folders of episodes that belong to no run."""
    return [store for store in found.stores if not any(store == run or contains(run, store) for run in found.runs)]


def stores_of(place: str, found: Found) -> list[str]:
    """A run's folders of episodes, what it came to first: the end, the newest steps, the start, and then its data."""
    own = [store for store in found.stores if store == place or contains(place, store)]
    return sorted(own, key=store_order)


def store_order(store: str) -> tuple[int, int, str]:
    """Where a folder of episodes stands among a run's others."""
    name = store.rpartition("/")[2]
    step = STEP.match(name)
    for rank, kind in enumerate(("after", "step-", "before", "random")):
        if name.startswith(kind):
            return rank, -int(step[1]) if step else 0, store
    return 9, 0, store


def _walk(root: Path) -> Iterator[tuple[Path, set[str]]]:
    for here, folders, files in os.walk(root):
        path = Path(here)
        deep = len(path.relative_to(root).parts) >= DEPTH
        kept = [] if deep else [name for name in folders if not name.startswith((".", "checkpoint-"))]
        folders[:] = sorted(name for name in kept if not (path / name).is_symlink())
        yield path, {name for name in files if not (path / name).is_symlink()}
