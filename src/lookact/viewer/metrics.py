"""The numbers of a run as columns: all of them, or those written since a byte offset."""

from __future__ import annotations

import math
from functools import lru_cache
from pathlib import Path
from typing import Any

from lookact.config.aliases import renew_metrics
from lookact.data.jsonl import read_objects
from lookact.training.run_files import METRICS
from lookact.viewer.folder import check_file, is_file, is_text

MAX_METRICS = 256 << 20
CHUNK = 4 << 20
"""Bytes of a file read for one answer."""
STARTS = ("sft", "bc", "warm_start")
"""Folders of a supervised start, the last in runs of earlier versions."""
SPARKLINE_POINTS = 48
"""Points of the small curve beside a run's name."""
HEADLINES = (
    *("eval/success_rate", "eval/score", "eval/token_accuracy", "eval/episode_return", "eval/return"),
    *("rollout/success_rate", "rollout/score", "rollout/episode_return", "rollout/return", "world/token_accuracy"),
)
"""The headline metric of a run: the first of these that it logs."""
Columns = dict[str, list[float | None]]


def metric_files(folder: Path) -> list[str]:
    """The files of numbers in a run folder: its own first, then those of its earlier phases."""
    starts = [folder / name for name in STARTS if not (folder / name).is_symlink()]
    phases = (path for start in starts for path in start.glob("**/*.jsonl"))
    found = [folder / METRICS, *sorted(phases)]
    names = (path.relative_to(folder).as_posix() for path in dict.fromkeys(found) if is_file(path))
    return [name for name in names if is_text(name)]


def read_metrics(path: Path, *, offset: int = 0, version: str = "") -> dict[str, Any]:
    """Columns of the lines after byte `offset`, and where to go on.

    A file that was written anew since `version`, as a resumed run does, is read from its start: `restart` says so.
    """
    try:
        status = check_file(path, MAX_METRICS)
    except OSError:
        return {"version": "", "offset": 0, "restart": True, "more": False, "skipped": 0, "columns": {"step": []}}
    restart = version != str(status.st_ino) or offset > status.st_size
    values, stop = read_objects(path, 0 if restart else offset, most=CHUNK)
    columns, skipped = as_columns(values)
    return {
        "version": str(status.st_ino),
        "offset": stop,
        "restart": restart,
        # a chunk without a whole line would be asked for for ever
        "more": bool(values) and stop < status.st_size,
        "skipped": skipped,
        "columns": columns,
    }


def as_columns(values: list[Any]) -> tuple[Columns, int]:
    """Each key's numbers, None where a line has none; lines without a step are counted, not kept."""
    lines = [
        renew_metrics(value) for value in values if isinstance(value, dict) and _number(value.get("step")) is not None
    ]
    named = (key for line in lines for key, value in line.items() if not isinstance(value, str))
    # in JavaScript __proto__ is no name like others, and half of a surrogate pair is no text
    keys = dict.fromkeys(key for key in named if key != "__proto__" and is_text(key))
    columns = {key: [_number(line.get(key)) for line in lines] for key in ("step", *keys)}
    return columns, len(values) - len(lines)


def summary(folder: Path) -> dict[str, Any]:
    """Steps done and the headline metric of a run: its name, last value and a small curve."""
    path = folder / METRICS
    try:
        status = check_file(path, MAX_METRICS)
        return _summary(path, status.st_ino, status.st_size, status.st_mtime_ns)
    except OSError:
        return {"steps": 0, "headline": None}


@lru_cache(maxsize=1024)
def _summary(path: Path, *identity: int) -> dict[str, Any]:
    columns, _ = as_columns(read_objects(path)[0])
    steps = [step for step in columns["step"] if step is not None]
    return {"steps": int(max(steps, default=0)), "headline": _headline(columns)}


def _headline(columns: Columns) -> dict[str, Any] | None:
    ranked = [*HEADLINES, *sorted(key for key in columns if key.startswith(("eval/", "loss/")))]
    for key in ranked:
        values = [value for value in columns.get(key, ()) if value is not None]
        if values:
            return {"key": key, "value": values[-1], "spark": downsample(values)}
    return None


def downsample(values: list[float]) -> list[float]:
    """At most `SPARKLINE_POINTS` means of neighbours, in order."""
    size = math.ceil(len(values) / SPARKLINE_POINTS)
    parts = [values[start : start + size] for start in range(0, len(values), size or 1)]
    return [sum(part) / len(part) for part in parts]


def _number(value: Any) -> float | None:
    if isinstance(value, bool) or not isinstance(value, int | float):
        return None
    # a whole number beyond every float is no measurement
    return value if abs(value) < 1e300 else None
