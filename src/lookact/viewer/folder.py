"""The viewed folder: what lies where, and the one gate through which every file of it is opened."""

from __future__ import annotations

import copy
import json
import math
import os
import re
import stat
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path, PurePosixPath
from typing import Any

from lookact.config.safe_yaml import MAX_DEPTH, load_yaml
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
MAX_BYTES = 1 << 30
"""The largest file that is opened at all."""
MAX_TEXT_BYTES = 16 << 20
"""Of a file that is parsed whole."""
EXACT = 1 << 53
"""Larger whole numbers would be rounded by a browser: they go as text."""


class NotFound(Exception):
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
    """The path of something that exists below `root`; `..`, absolute paths and links raise NotFound."""
    parts = PurePosixPath(place).parts
    if "\0" in place or ".." in parts or place.startswith("/"):
        raise NotFound(place)
    path = root
    try:
        for part in parts:
            path = path / part
            if stat.S_ISLNK(path.lstat().st_mode):
                raise NotFound(place)
    except (OSError, UnicodeError):
        # missing, or a name that no file can have
        raise NotFound(place) from None
    return path


def check_file(path: Path, most: int = MAX_BYTES) -> os.stat_result:
    """The gate: a regular file's status. A link, FIFO, socket, device or a file over `most` bytes raises OSError."""
    status = path.lstat()
    if not stat.S_ISREG(status.st_mode):
        raise OSError(f"{path.name} is no regular file")
    if status.st_size > most:
        raise OSError(f"{path.name} has more than {most} bytes")
    return status


def is_file(path: Path, most: int = MAX_BYTES) -> bool:
    """Whether a path may be opened."""
    try:
        check_file(path, most)
    except OSError:
        return False
    return True


def find(root: Path) -> Found:
    """Every run and every folder of episodes; links are not followed."""
    runs, stores = [], []
    for folder, names in _walk(root):
        place = folder.relative_to(root).as_posix()
        if is_run(names):
            runs.append(place)
        if MANIFEST in names or is_lerobot(folder) or any(map(is_recording, names)):
            stores.append(place)
    # a run's own phases keep metrics too: they belong to it
    outer = [run for run in runs if not any(contains(other, run) for other in runs)]
    return Found(tuple(outer), tuple(store for store in stores if is_text(store)))


def is_run(names: set[str]) -> bool:
    """Whether a folder of these files is a run's."""
    return METRICS in names or {CONFIG, LOG} <= names


def is_lerobot(folder: Path) -> bool:
    """Whether a folder holds a dataset in LeRobot's format."""
    path = folder / LEROBOT
    return is_file(path) and not path.parent.is_symlink()


def is_recording(name: str) -> bool:
    """Whether a file is named as recordings are."""
    return RECORDING.fullmatch(name) is not None


def is_text(name: str) -> bool:
    """Whether a name is Unicode: one of other bytes cannot be asked for in an address."""
    return not any("\ud800" <= character <= "\udfff" for character in name)


def contains(outer: str, inner: str) -> bool:
    """Whether one relative path lies below another."""
    return outer != inner and (outer == "." or inner.startswith(f"{outer}/"))


def loose_stores(found: Found) -> list[str]:
    """Folders of episodes that belong to no run."""
    return [store for store in found.stores if not any(store == run or contains(run, store) for run in found.runs)]


def stores_of(place: str, found: Found) -> list[str]:
    """A run's folders of episodes: the end, the newest steps, the start, and then its data."""
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
        yield path, {name for name in files if is_file(path / name, sys.maxsize)}


def to_json(value: Any, depth: int = 0) -> Any:
    """A value in JSON's own types; NaN and infinities become None, anything unknown its text."""
    if depth > MAX_DEPTH:
        raise ValueError(f"nested more than {MAX_DEPTH} deep")
    if isinstance(value, dict):
        return {_text(str(key)): to_json(item, depth + 1) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [to_json(item, depth + 1) for item in value]
    if isinstance(value, float):
        return value if math.isfinite(value) else None
    if isinstance(value, int) and abs(value) > EXACT:
        return str(value)
    return value if value is None or isinstance(value, bool | int) else _text(str(value))


def read_json(path: Path) -> Any:
    """What a JSON file holds; None where it is missing, torn, no JSON, or not let through."""
    try:
        check_file(path, MAX_TEXT_BYTES)
        return to_json(json.loads(path.read_text(encoding="utf-8")))
    except (OSError, ValueError, RecursionError):
        return None


def read_yaml(path: Path) -> Any:
    """What a YAML file holds; None as with JSON. It is read anew only when it has changed."""
    try:
        status = check_file(path, MAX_TEXT_BYTES)
        return copy.deepcopy(_yaml(path, status.st_ino, status.st_size, status.st_mtime_ns))
    except OSError:
        return None


@lru_cache(maxsize=4096)
def _yaml(path: Path, *identity: int) -> Any:
    try:
        return to_json(load_yaml(path.read_text(encoding="utf-8")))
    except ValueError:
        # remembered too: a file that takes long to refuse is refused once
        return None


def read_tail(path: Path, most: int) -> str:
    """The last whole lines of a text, at most so many bytes; empty where there is none."""
    try:
        size = check_file(path).st_size
        with path.open("rb") as file:
            file.seek(max(0, size - most))
            data = file.read(most)
    except OSError:
        return ""
    text = data.decode("utf-8", errors="replace")
    return text if size <= most else text.partition("\n")[2]


def _text(value: str) -> str:
    """A text that UTF-8 can hold: half of a surrogate pair becomes a question mark."""
    return value.encode("utf-8", errors="replace").decode()
