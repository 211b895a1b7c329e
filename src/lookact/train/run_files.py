"""The files of a run folder by name, and how they are read while a run still writes them; loads no torch."""

from __future__ import annotations

import fcntl
import json
import os
import struct
import sys
from pathlib import Path
from typing import Any

CONFIG = "config.yaml"
VERSIONS = "versions.json"
METRICS = "metrics.jsonl"
RESULT = "result.json"
LOG = "training.log"
LOCK = ".lock"

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
