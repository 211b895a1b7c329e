"""Reads the numbers behind a figure: lines of metrics and tables with named columns."""

from __future__ import annotations

import csv
import math
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from lookact.config.aliases import current_metric, renew_metrics
from lookact.config.values import closest
from lookact.errors import DataError
from lookact.training.run_files import METRICS, read_objects

Numbers = NDArray[np.float64]
Curve = tuple[Numbers, Numbers]
"""Steps and values, (n,) each."""


def read_metrics(path: Path, key: str) -> Curve:
    """Steps and values (n,) of one key in a run folder or its metrics.jsonl; lines without the key are passed over."""
    curves, key = read_curves(path), current_metric(key)
    if key not in curves:
        near = closest(key, curves)
        remedy = f"did you mean {near}?" if near else f"it has {', '.join(curves)}"
        raise DataError(f"{path} holds no {key}: {remedy}")
    return curves[key]


def read_curves(path: Path) -> dict[str, Curve]:
    """Every key of a run folder or its metrics.jsonl; a step written again counts once, as it was written last."""
    file = path / METRICS if path.is_dir() else path
    points: dict[str, dict[float, float]] = {}
    for number, line in _metric_lines(file):
        step = line.pop("step", None)
        for key, value in line.items():
            if value is None:
                continue
            if not isinstance(step, int | float) or not isinstance(value, int | float):
                raise DataError(f"{file}:{number} needs numbers for step and {key}: mend or remove the line")
            points.setdefault(key, {})[float(step)] = float(value)
    if not points:
        raise DataError(f"{file} holds no numbers: nothing to draw yet")
    return {key: _curve(found) for key, found in sorted(points.items())}


def read_columns(path: Path, names: Sequence[str]) -> dict[str, Numbers]:
    """Columns (n,) of a CSV file by name, all cells finite numbers."""
    header, rows = _csv_rows(path)
    for name in names:
        if name not in header:
            raise DataError(f"{path} has no column {name}: its columns are {', '.join(header)}")
    if not rows:
        raise DataError(f"{path} holds no rows under its header: nothing to draw")
    return {name: np.array([_cell(path, number, row, name) for number, row in rows]) for name in names}


def read_eval_csv(path: Path, column: str = "success_rate") -> Curve:
    """Steps and values (n,) of an eval.csv."""
    columns = read_columns(path, ("step", column))
    order = np.argsort(columns["step"], kind="stable")
    return columns["step"][order], columns[column][order]


def _metric_lines(file: Path) -> Iterator[tuple[int, dict[str, Any]]]:
    """Each line's number and object; the last may be torn, as a running job leaves it."""
    try:
        values, _ = read_objects(file)
    except FileNotFoundError:
        raise DataError(f"{file} does not exist: check the path") from None
    except OSError as error:
        raise DataError(f"{file} cannot be read as text: {error}") from None
    for number, value in enumerate(values, start=1):
        if value is None:
            raise DataError(f"{file}:{number} is not JSON: mend or remove the line")
        if not isinstance(value, dict):
            raise DataError(f"{file}:{number} is not a JSON object: mend or remove the line")
        yield number, renew_metrics(value)


def _csv_rows(path: Path) -> tuple[list[str], list[tuple[int, dict[str, str | None]]]]:
    """The header's names, and each row with the number of its line."""
    reader = csv.DictReader(_read_text(path).splitlines(), skipinitialspace=True)
    header = [name.strip() for name in reader.fieldnames or ()]
    if not header:
        raise DataError(f"{path} is empty: expected a header and rows")
    reader.fieldnames = header
    return header, [(reader.line_num, row) for row in reader]


def _cell(path: Path, number: int, row: dict[str, str | None], name: str) -> float:
    text = row[name]
    try:
        value = float(text or "")
    except ValueError:
        value = math.nan
    if not math.isfinite(value):
        raise DataError(f"{path}:{number} has {text!r} under {name}: expected a number")
    return value


def _read_text(path: Path) -> str:
    try:
        # tables saved by spreadsheets begin with a byte order mark
        return path.read_text(encoding="utf-8-sig")
    except FileNotFoundError:
        raise DataError(f"{path} does not exist: check the path") from None
    except (OSError, UnicodeDecodeError) as error:
        raise DataError(f"{path} cannot be read as text: {error}") from None


def _curve(points: Mapping[float, float]) -> Curve:
    steps = sorted(points)
    return np.array(steps), np.array([points[step] for step in steps])
