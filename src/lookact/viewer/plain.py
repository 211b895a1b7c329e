"""What files hold, as values that a browser's JSON can read."""

from __future__ import annotations

import copy
import json
import math
from functools import lru_cache
from pathlib import Path
from typing import Any

import yaml

EXACT = 1 << 53
"""Larger whole numbers would be rounded by a browser: they go as text."""


def plain(value: Any) -> Any:
    """JSON's own types; NaN and infinities become None, anything unknown its text."""
    if isinstance(value, dict):
        return {str(key): plain(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [plain(item) for item in value]
    if isinstance(value, float):
        return value if math.isfinite(value) else None
    if isinstance(value, int) and abs(value) > EXACT:
        return str(value)
    return value if value is None or isinstance(value, bool | int | str) else str(value)


def read_json(path: Path) -> Any:
    """What a JSON file holds; None where it is missing, torn or no JSON."""
    try:
        return plain(json.loads(path.read_text(encoding="utf-8")))
    except (OSError, ValueError):
        return None


def read_yaml(path: Path) -> Any:
    """What a YAML file holds; None where it is missing, torn or no YAML. It is read anew only when it has changed."""
    try:
        status = path.stat()
        return copy.deepcopy(_yaml(path, status.st_ino, status.st_size, status.st_mtime_ns))
    except (OSError, ValueError, yaml.YAMLError):
        return None


@lru_cache(maxsize=4096)
def _yaml(path: Path, *identity: int) -> Any:
    # libyaml, where PyYAML has it, is ten times as fast
    loader = getattr(yaml, "CSafeLoader", yaml.SafeLoader)
    return plain(yaml.load(path.read_text(encoding="utf-8"), loader))


def read_tail(path: Path, most: int) -> str:
    """The last whole lines of a text, at most so many bytes; empty where there is none."""
    try:
        with path.open("rb") as file:
            size = file.seek(0, 2)
            file.seek(max(0, size - most))
            data = file.read()
    except OSError:
        return ""
    text = data.decode("utf-8", errors="replace")
    return text if size <= most else text.partition("\n")[2]
