"""How often a judge was right, by how far the true scores of the two pictures lie apart."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.patches import Patch
from matplotlib.ticker import PercentFormatter
from numpy.typing import NDArray

from lookact.errors import DataError
from lookact.plots.learning_curve import Numbers, read_columns
from lookact.plots.style import INK, PALE, PALETTE, add_note, new_axes, quiet

SCORES = ("ground_truth_score_1", "ground_truth_score_2")
VERDICT = "vlm_predicted_label"
COLUMNS = (*SCORES, VERDICT)
OUTCOMES = ("correct", "incorrect", "no preference")
COLOURS = (PALETTE[0], PALETTE[1], PALE)
BAR_INCHES = 0.9
ROUNDING = 1e-9
"""Of the largest score: how finely differences are told apart."""
READABLE_SHARE = 0.06
"""Of a bar, for a count to fit into it."""


@dataclass(frozen=True)
class QueryLog:
    """Pairs with true scores and the judge's verdicts: 0 the first is better, 1 the second, -1 neither. All (n,)."""

    first: Numbers
    second: Numbers
    verdicts: NDArray[np.int64]


@dataclass(frozen=True)
class Bins:
    """Pairs sorted by how far their scores lie apart; those with equal scores have no right answer and stand aside."""

    edges: Numbers
    """(k + 1,)"""
    counts: NDArray[np.int64]
    """(k, 3) in the order of `OUTCOMES`."""
    ties: int


def read_query_log(path: Path) -> QueryLog:
    """Read a vlm_query_log.csv."""
    columns = read_columns(path, COLUMNS)
    verdicts = columns[VERDICT]
    odd = np.flatnonzero(~np.isin(verdicts, (0, 1, -1)))
    if len(odd):
        raise DataError(f"{path} row {odd[0] + 1} has the verdict {verdicts[odd[0]]:g}: expected 0, 1 or -1")
    return QueryLog(columns[SCORES[0]], columns[SCORES[1]], verdicts.astype(np.int64))


def count_outcomes(log: QueryLog, *, bins: int = 5, equal_width: bool = False) -> Bins:
    """Count verdicts in up to `bins` bins of about equally many pairs, or of equal width."""
    apart = np.abs(log.first - log.second)
    # 0.3 - 0.1 and 0.2 are one difference, and no difference is one of rounding
    unit = ROUNDING * (float(np.abs([log.first, log.second]).max()) or 1.0)
    apart = np.round(apart / unit) * unit
    differ = apart > 0
    if not differ.any():
        raise DataError(f"all {len(apart)} pairs have equal scores: no verdict on them is right or wrong")
    apart = apart[differ]
    edges = np.linspace(0.0, apart.max(), bins + 1) if equal_width else np.quantile(apart, np.linspace(0, 1, bins + 1))
    # many equal differences make equal quantiles: such bins become one
    edges = np.unique(edges) if len(np.unique(edges)) > 1 else np.array([0.0, apart.max()])
    # a difference on an edge belongs to the bin above it, the largest to the last
    places = np.minimum(np.searchsorted(edges, apart + unit / 2, side="right") - 1, len(edges) - 2)
    counts = np.zeros((len(edges) - 1, len(OUTCOMES)), np.int64)
    np.add.at(counts, (places, _outcomes(log)[differ]), 1)
    return Bins(edges, counts, ties=int((~differ).sum()))


def draw_judge_accuracy(log: QueryLog, *, title: str, bins: int = 5, equal_width: bool = False) -> Figure:
    """A bar a bin: the shares of correct, incorrect and undecided verdicts, with their counts."""
    counted = count_outcomes(log, bins=bins, equal_width=equal_width)
    with quiet():
        figure, axes = new_axes(width=max(5.4, 0.7 + BAR_INCHES * len(counted.counts)))
        _draw_bars(axes, counted)
        _label_bins(axes, counted)
        axes.set_title(title, pad=26 if title else 18)
        axes.set(xlabel="difference of the true scores", ylabel="share of pairs", ylim=(0, 1))
        axes.yaxis.set_major_formatter(PercentFormatter(1.0))
        axes.grid(axis="x", visible=False)
        _explain(axes, counted)
        add_note(figure, _note(counted))
    return figure


def _outcomes(log: QueryLog) -> NDArray[np.int64]:
    """(n,) index into `OUTCOMES`; pairs with equal scores count as incorrect and are for the caller to leave out."""
    better = np.where(log.first > log.second, 0, 1)
    right = (log.verdicts == better) & (log.first != log.second)
    return np.where(log.verdicts == -1, 2, np.where(right, 0, 1))


def _draw_bars(axes: Axes, counted: Bins) -> None:
    """Stacked bars, each count written into its part where it fits."""
    totals = counted.counts.sum(axis=1)
    shares = counted.counts / np.maximum(totals, 1)[:, None]
    bottoms = np.cumsum(shares, axis=1) - shares
    places = np.arange(len(totals))
    for outcome, colour in enumerate(COLOURS):
        axes.bar(
            places,
            shares[:, outcome],
            bottom=bottoms[:, outcome],
            color=colour,
            width=0.72,
            edgecolor="white",
            linewidth=0.8,
            label=OUTCOMES[outcome],
        )
        for place in places[shares[:, outcome] >= READABLE_SHARE]:
            height = bottoms[place, outcome] + shares[place, outcome] / 2
            ink = INK if colour == PALE else "white"
            axes.text(place, height, str(counted.counts[place, outcome]), color=ink, ha="center", va="center")


def _label_bins(axes: Axes, counted: Bins) -> None:
    """Under each bar, the differences it stands for and how many pairs it holds."""
    digits = _digits(counted.edges)
    bounds = [f"{edge:.{digits}f}" for edge in counted.edges]
    totals = counted.counts.sum(axis=1)
    labels = [f"{low}–{high}\nn = {total}" for low, high, total in zip(bounds, bounds[1:], totals)]
    axes.set_xticks(np.arange(len(labels)), labels, fontsize=8)
    axes.tick_params(axis="x", length=0)


def _digits(edges: Numbers) -> int:
    """Decimals that keep neighbouring edges apart, and no more than that."""
    gap = float(np.diff(edges).min())
    return int(np.clip(np.round(-np.log10(gap)) + 1, 0, 6))


def _explain(axes: Axes, counted: Bins) -> None:
    """The colours' meaning over the bars, with each outcome's share of all pairs."""
    shares = counted.counts.sum(axis=0) / counted.counts.sum()
    swatches = [Patch(color=colour, label=f"{n} {s:.0%}") for colour, n, s in zip(COLOURS, OUTCOMES, shares)]
    axes.legend(
        handles=swatches, loc="lower left", bbox_to_anchor=(-0.01, 1.0), ncols=3, frameon=False,
        handlelength=0.9, handleheight=0.9, handletextpad=0.5, columnspacing=1.6, borderaxespad=0.2,
    )  # fmt: skip


def _note(counted: Bins) -> str:
    if not counted.ties:
        return ""
    return f"{counted.ties} pairs with equal scores are left out: no verdict on them is right or wrong"
