"""Learning curves: a line a label, the mean of its seeds with a band, reference lines, labels where lines end."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import EngFormatter
from numpy.typing import ArrayLike
from scipy.optimize import isotonic_regression

from lookact.errors import DataError
from lookact.plots.style import GREY, PALETTE, add_note, new_axes, quiet
from lookact.plots.tables import Numbers, read_eval_csv, read_metrics

__all__ = ["draw_learning_curve", "read_eval_csv", "read_metrics"]

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
