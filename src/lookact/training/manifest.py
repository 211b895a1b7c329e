"""The list of a checkpoint's files with their sizes and hashes: how a whole one is told from a torn or foreign one."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from lookact.errors import DataError
from lookact.training.atomic_io import write_text

MANIFEST = "manifest.json"
FORMAT = "lookact-checkpoint"
VERSION = 1


def write_manifest(folder: Path, step: int) -> None:
    """List every file below `folder`. Write it last: its presence says that the rest is complete."""
    files = {
        path.relative_to(folder).as_posix(): {"size": path.stat().st_size, "sha256": _sha256(path)}
        for path in sorted(folder.rglob("*"))
        if path.is_file() and path.name != MANIFEST
    }
    record = {"format": FORMAT, "version": VERSION, "step": step, "files": files}
    write_text(folder / MANIFEST, json.dumps(record, indent=2) + "\n")


def verify(folder: Path, *, hashes: bool = True) -> int:
    """The step of a whole checkpoint; anything torn, foreign or newer than this code raises DataError."""
    record = _read(folder)
    for name, entry in record["files"].items():
        path = folder / name
        if ".." in Path(name).parts or not path.is_file():
            raise DataError(f"{folder} is torn: {name} is missing; use another checkpoint")
        if path.stat().st_size != entry["size"]:
            raise DataError(
                f"{folder} is torn: {name} has {path.stat().st_size} bytes, not {entry['size']}; use another checkpoint"
            )
        if hashes and _sha256(path) != entry["sha256"]:
            raise DataError(f"{folder} is torn: the contents of {name} have changed; use another checkpoint")
    return int(record["step"])


def _read(folder: Path) -> Mapping[str, Any]:
    path = folder / MANIFEST
    if not path.is_file():
        raise DataError(f"{folder} is not a LookAct checkpoint: it has no {MANIFEST}")
    try:
        record = json.loads(path.read_text(encoding="utf-8"))
    except ValueError:
        raise DataError(f"{folder} is torn: {MANIFEST} cannot be read; use another checkpoint") from None
    if not isinstance(record, dict) or record.get("format") != FORMAT:
        raise DataError(f"{folder} is not a LookAct checkpoint: its {MANIFEST} is of another kind")
    if record.get("version") != VERSION:
        raise DataError(
            f"{folder} has checkpoint version {record.get('version')}, this LookAct reads {VERSION}: upgrade lookact"
        )
    if not isinstance(record.get("step"), int) or not isinstance(record.get("files"), dict):
        raise DataError(f"{folder} is torn: {MANIFEST} is incomplete; use another checkpoint")
    return record


def _sha256(path: Path) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()
