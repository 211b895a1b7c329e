"""Learning curves of one or several runs, drawn from their `metrics.jsonl`."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from pathlib import Path

import numpy as np
from matplotlib.axes import Axes
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure
from numpy.typing import NDArray

from lookact.errors import DataError
from lookact.types import Image

Curve = tuple[NDArray[np.float64], NDArray[np.float64]]
"""Steps (n,) and values (n,)."""
INK, RUN_COLORS = "#2b2d42", ("#2a6fbb", "#d1495b", "#3a9d6e", "#e09f3e", "#7b5ea7", "#4a4e69")
PANEL_COLUMNS = 3


def read_curves(run: Path) -> dict[str, Curve]:
    """Every number a run logged, by name; a step logged again after a resume counts once, as it ended."""
    path = run / "metrics.jsonl"
    points: dict[str, dict[int, float]] = {}
    try:
        for line in path.read_text(encoding="utf-8").splitlines():
            record = json.loads(line)
            for name, value in record.items():
                if name != "step" and isinstance(value, int | float):
                    points.setdefault(name, {})[int(record["step"])] = float(value)
    except OSError as error:
        raise DataError(f"{path}: cannot be read ({error.strerror}); give a run folder") from error
    except (ValueError, KeyError, AttributeError) as error:
        raise DataError(f"{path}: is not a file of metrics ({type(error).__name__}: {error})") from error
    return {name: _curve(found) for name, found in points.items()}


def smooth(values: NDArray[np.float64], width: int) -> NDArray[np.float64]:
    """(n,) mean over the last `width` values, fewer at the start."""
    sums = np.cumsum(np.insert(values, 0, 0.0))
    ends = np.arange(1, len(values) + 1)
    starts = np.maximum(ends - width, 0)
    means: NDArray[np.float64] = (sums[ends] - sums[starts]) / (ends - starts)
    return means


def draw_curves(runs: Mapping[str, Mapping[str, Curve]], names: Sequence[str]) -> Image:
    """One panel a metric, one colour a run: the values thin, their running mean thick."""
    columns = min(PANEL_COLUMNS, len(names))
    rows = -(-len(names) // columns)
    figure = Figure(figsize=(4.6 * columns, 3.2 * rows), dpi=110, layout="constrained", facecolor="white")
    for index, name in enumerate(names):
        panel = figure.add_subplot(rows, columns, index + 1)
        for color, (run, curves) in zip(RUN_COLORS * len(runs), runs.items()):
            if name in curves:
                _draw_curve(panel, curves[name], color, run)
        _dress(panel, name)
        if index == 0 and len(runs) > 1:
            panel.legend(frameon=False, fontsize=8)
    canvas = FigureCanvasAgg(figure)
    canvas.draw()  # type: ignore[no-untyped-call]
    return np.asarray(canvas.buffer_rgba())[..., :3].copy()  # type: ignore[no-untyped-call]


def _curve(points: Mapping[int, float]) -> Curve:
    steps = sorted(points)
    return np.array(steps, dtype=np.float64), np.array([points[step] for step in steps])


def _draw_curve(panel: Axes, curve: Curve, color: str, run: str) -> None:
    steps, values = curve
    few = len(steps) <= 20
    panel.plot(steps, values, color=color, alpha=1.0 if few else 0.3, linewidth=1.8 if few else 0.8,
               marker="o" if few else "", markersize=3.5, label=run if few else None)  # fmt: skip
    if not few:
        panel.plot(steps, smooth(values, max(3, len(values) // 20)), color=color, linewidth=1.8, label=run)


def _dress(panel: Axes, name: str) -> None:
    panel.set_title(name, loc="left", fontsize=10, color=INK)
    panel.set_xlabel("step", fontsize=8, color=INK)
    panel.tick_params(labelsize=8, colors=INK)
    panel.grid(color="#e6e8ee", linewidth=0.8)
    panel.set_axisbelow(True)
    panel.spines[["top", "right"]].set_visible(False)
