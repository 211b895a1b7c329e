"""The files of a run folder by name, and how they are read while a run still writes them; loads no torch."""

from __future__ import annotations

import fcntl
import json
import os
import shutil
import struct
import sys
from pathlib import Path
from typing import Any

from lookact.errors import ConfigError

CONFIG = "config.yaml"
HISTORY = "config_history.jsonl"
"""Every change of the config since the run began, setting by setting."""
ORIGIN = "run.json"
"""Which recipe and preset a run, or a checkpoint, is of, and which LookAct wrote it."""
VERSIONS = "versions.json"
METRICS = "metrics.jsonl"
RESULT = "result.json"
LOG = "training.log"
LOCK = ".lock"
WORTH_KEEPING = ("checkpoint-*", "best", "warm_start", "episodes")
"""What makes a folder hold a run; one that failed before its first step may simply be started again."""
OPENED = frozenset((CONFIG, HISTORY, ORIGIN, VERSIONS, METRICS, LOG, LOCK, "tensorboard", "model"))
"""What a run holds before its first step: no work is lost with it."""

_FLOCK = "hhqqi4x"
"""Linux's struct flock: type, whence, start, length, process."""


def read_objects(path: Path, offset: int = 0, *, most: int | None = None) -> tuple[list[Any], int]:
    """The JSON values of a file's lines from byte `offset` on, and the offset at which to go on.

    A line that is no JSON gives None; a last line still being written is left for the next call. `most` bounds the
    bytes that are read.
    """
    with path.open("rb") as file:
        file.seek(offset)
        data = file.read(-1 if most is None else most)
    # a last line without its end was whole all the same, when the previous call took it
    start = 1 if offset and data.startswith(b"\n") else 0
    *lines, rest = data[start:].split(b"\n")
    values = [_parsed(line) for line in lines]
    last = _parsed(rest) if rest and offset + len(data) == path.stat().st_size else None
    if isinstance(last, dict | list):
        return [*values, last], offset + len(data)
    return values, offset + len(data) - len(rest)


def holds_run(folder: Path) -> bool:
    """Whether a folder holds work that a new run would mix with its own."""
    metrics = folder / METRICS
    kept = any(next(folder.glob(pattern), None) for pattern in WORTH_KEEPING)
    return kept or (metrics.exists() and metrics.stat().st_size > 0)


def refuse_second_run(folder: Path) -> None:
    """Refuse to begin a new run where there is one."""
    if holds_run(folder):
        raise ConfigError(f"{folder} holds a run: go on with --auto-resume or --resume, or give another --name")


def drop_refused(folder: Path) -> None:
    """Remove the folder of a run that was refused before it did anything; one with any work in it stays."""
    if folder.is_dir() and {path.name for path in folder.iterdir()} <= OPENED and not holds_run(folder):
        shutil.rmtree(folder)


def saved_config(path: Path) -> Path | None:
    """The config of a run folder, or of the run that a checkpoint belongs to."""
    return next((place for place in (path / CONFIG, path.parent / CONFIG) if place.is_file()), None)


def read_origin(path: Path) -> dict[str, Any]:
    """The record of a run folder, or of the run that a checkpoint is of; empty where there is none."""
    for place in (path / ORIGIN, path.parent / ORIGIN):
        try:
            record = json.loads(place.read_text(encoding="utf-8"))
        except (OSError, ValueError):
            continue
        if isinstance(record, dict):
            return record
    return {}


def is_locked(folder: Path) -> bool:
    """Whether a live process of this machine trains in a run folder; asking takes no lock."""
    if sys.platform != "linux":
        return False
    try:
        with (folder / LOCK).open("rb") as file:
            asked = struct.pack(_FLOCK, fcntl.F_RDLCK, os.SEEK_SET, 0, 0, 0)
            kind = struct.unpack(_FLOCK, fcntl.fcntl(file, fcntl.F_GETLK, asked))[0]
    except OSError:
        return False
    return bool(kind != fcntl.F_UNLCK)


def _parsed(line: bytes) -> Any:
    try:
        return json.loads(line.decode("utf-8-sig"))
    except ValueError:
        return None
