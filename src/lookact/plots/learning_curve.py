"""Learning curves: a line a label, the mean of its seeds with a band, reference lines, labels where lines end.

Their numbers are read from the metrics of runs and from tables with named columns.
"""

from __future__ import annotations

import csv
import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import EngFormatter
from numpy.typing import ArrayLike, NDArray
from scipy.optimize import isotonic_regression

from lookact.config.aliases import current_metric, renew_metrics
from lookact.config.values import closest
from lookact.data.jsonl import read_objects
from lookact.errors import DataError
from lookact.plots.style import GREY, PALETTE, add_note, new_axes, quiet
from lookact.training.run_files import METRICS

Numbers = NDArray[np.float64]
Curve = tuple[Numbers, Numbers]
"""Steps and values, (n,) each."""
Points = tuple[ArrayLike, ArrayLike]
"""Steps and values, (n,) each."""
LABEL_GAP = 0.065
"""Between the middles of two labels, as a share of the plot's height."""
ROUNDING = 1e-9
"""What lies below is zero."""


@dataclass(frozen=True)
class Summary:
    """Several seeds on one axis of steps, (n,) each."""

    steps: Numbers
    mean: Numbers
    low: Numbers
    high: Numbers


def draw_learning_curve(
    curves: Mapping[str, Sequence[Points]],
    *,
    title: str,
    x_label: str,
    y_label: str,
    marks: Sequence[tuple[str, float]] = (),
    window: int = 1,
    x_range: tuple[float, float] | None = None,
    y_range: tuple[float, float] | None = None,
) -> Figure:
    """A label's curves are its seeds, each averaged over its last `window` points; `marks` are horizontal lines.

    Ranges fix an axis, so that a figure drawn again and again while a run goes on keeps its frame.
    """
    if not curves:
        raise DataError("no curves to draw: name at least one file")
    with quiet():
        figure, axes = new_axes()
        ends = []
        for number, (label, seeds) in enumerate(curves.items()):
            colour = PALETTE[number % len(PALETTE)]
            ends.append((label, _draw_seeds(axes, label, seeds, colour, window), colour))
        for label, value in marks:
            axes.axhline(value, color=GREY, linewidth=0.9, linestyle=(0, (4, 3)), zorder=1.5)
            ends.append((label, value, GREY))
        axes.set(title=title, xlabel=x_label, ylabel=y_label)
        _scale(axes)
        if x_range is not None:
            axes.set_xlim(*x_range)
        if y_range is not None:
            axes.set_ylim(*y_range)
        _label_ends(axes, ends)
        add_note(figure, _note(curves, window))
    return figure


def summarise(seeds: Sequence[Points]) -> Summary:
    """Mean, lowest and highest over seeds at every step that all of them span; between its points a seed is a line."""
    arrays = [(np.asarray(steps, float), np.asarray(values, float)) for steps, values in seeds]
    first = max(float(steps[0]) for steps, _ in arrays)
    last = min(float(steps[-1]) for steps, _ in arrays)
    if first > last:
        raise DataError(f"seeds share no steps: one begins at {first:g}, another ends at {last:g}")
    steps = np.unique(np.concatenate([steps for steps, _ in arrays]))
    steps = steps[(steps >= first) & (steps <= last)]
    values = np.stack([np.interp(steps, *seed) for seed in arrays])
    return Summary(steps, values.mean(axis=0), values.min(axis=0), values.max(axis=0))


def moving_average(values: ArrayLike, window: int) -> Numbers:
    """(n,) each value averaged with up to `window` - 1 before it."""
    sums = np.cumsum(np.concatenate([[0.0], np.asarray(values, float)]))
    stops = np.arange(1, len(sums))
    starts = np.maximum(stops - window, 0)
    averages: Numbers = (sums[stops] - sums[starts]) / (stops - starts)
    return averages


def spread(heights: Sequence[float], gap: float) -> Numbers:
    """(n,) the heights moved as little as possible, until they lie at least `gap` apart."""
    order = np.argsort(heights, kind="stable")
    offsets = gap * np.arange(len(order))
    apart = np.empty(len(order))
    apart[order] = isotonic_regression(np.asarray(heights, float)[order] - offsets).x + offsets
    return apart


def _draw_seeds(axes: Axes, label: str, seeds: Sequence[Points], colour: str, window: int) -> float:
    """Draw one label and return the height at which its line ends."""
    if not seeds or any(len(np.asarray(steps)) == 0 for steps, _ in seeds):
        raise DataError(f"{label} has no points to draw: check its file")
    summary = summarise([(steps, moving_average(values, window)) for steps, values in seeds])
    if len(seeds) > 1 or window > 1:
        # recorded noise stays behind what was made of it
        faint = 0.3 if window == 1 else 0.3 / len(seeds) ** 0.5
        for steps, values in seeds:
            axes.plot(steps, values, color=colour, linewidth=0.6, alpha=faint, gid="raw")
    if len(seeds) > 1:
        axes.fill_between(
            summary.steps, summary.low, summary.high, color=colour, alpha=0.14 if window == 1 else 0.3, linewidth=0
        )
    few = len(summary.steps) <= 40 and window == 1
    axes.plot(
        summary.steps, summary.mean, color=colour, linewidth=1.7, marker="o" if few else "", markersize=3, label=label
    )
    return float(summary.mean[-1])


def _scale(axes: Axes) -> None:
    """Zero is shown where it is near, and long step numbers are shortened."""
    axes.margins(x=0.02)
    low, high = axes.dataLim.intervaly
    if 0 <= low <= 0.5 * high:
        # a metric that stayed at zero, but for rounding, has no height of its own
        axes.set_ylim(bottom=0, top=1.06 * high if high > ROUNDING else 1.0)
    if axes.dataLim.intervalx[1] >= 10_000:
        axes.xaxis.set_major_formatter(EngFormatter(sep=""))


def _label_ends(axes: Axes, ends: Sequence[tuple[str, float, str]]) -> None:
    """Names at the right of the plot, beside the heights where their lines end."""
    bottom, top = axes.get_ylim()
    heights = spread([(height - bottom) / (top - bottom) for _, height, _ in ends], LABEL_GAP)
    for (label, _, colour), height in zip(ends, heights):
        axes.text(1.015, height, label, color=colour, transform=axes.transAxes, va="center", fontsize=8.5)


def _note(curves: Mapping[str, Sequence[Points]], window: int) -> str:
    """How the lines were made, in words."""
    counts = sorted({len(seeds) for seeds in curves.values()})
    number = str(counts[-1]) if len(counts) == 1 else f"{counts[0]}–{counts[-1]}"
    if counts[-1] == 1:
        return "" if window == 1 else f"bold: mean of the last {window} points  ·  thin: as recorded"
    if window == 1:
        return f"bold: mean of {number} seeds  ·  band: lowest to highest  ·  thin: each seed"
    averaged = f"bold: mean of {number} seeds, each over its last {window} points"
    return f"{averaged}  ·  band: lowest to highest  ·  thin: as recorded"


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
