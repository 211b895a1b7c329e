"""JSON Lines: rows appended one by one, read strictly or while still written, torn ends cut; loads no torch."""

from __future__ import annotations

import json
import os
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from lookact.errors import DataError

MANIFEST = "episode_manifest.jsonl"
"""The file that lists a folder's episodes, one row each."""


def append_row(path: Path, row: Mapping[str, Any], *, durable: bool = False) -> None:
    """Add one row at the end; `durable` waits until it is on the disk."""
    with path.open("a", encoding="utf-8") as file:
        file.write(json.dumps(row) + "\n")
        if durable:
            file.flush()
            os.fsync(file.fileno())


def read_rows(path: Path, *, remedy: str = "remove the line") -> Iterator[dict[str, Any]]:
    """Every row of a finished file; a line that is no JSON object raises DataError with its number and the remedy."""
    try:
        lines = path.read_text(encoding="utf-8").splitlines()
    except (OSError, UnicodeDecodeError) as error:
        raise DataError(f"{path}: cannot be read ({type(error).__name__})") from None
    for number, line in enumerate(lines, start=1):
        if line.strip():
            row = _parsed(line.encode())
            if not isinstance(row, dict):
                raise DataError(f"{path}: line {number} is not a JSON object: {remedy}")
            yield row


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


def drop_torn_line(path: Path) -> None:
    """Cut what a killed process left of a last line."""
    if path.exists() and (content := path.read_bytes()) and not content.endswith(b"\n"):
        path.write_bytes(content[: content.rfind(b"\n") + 1])


def _parsed(line: bytes) -> Any:
    try:
        return json.loads(line.decode("utf-8-sig"))
    except (ValueError, RecursionError):
        return None
