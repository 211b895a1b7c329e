"""Pairs from a judge's diary side by side: the two pictures, what the judge said, and whether it was right."""

from __future__ import annotations

import textwrap
from collections.abc import Sequence
from typing import Literal

import numpy as np
from matplotlib.figure import Figure
from PIL import Image

from lookact.algorithms.judge_diary import JudgedPair
from lookact.errors import DataError
from lookact.plots.style import BAD, GOOD, GREY, quiet

Shown = Literal["all", "right", "wrong", "undecided"]
ACROSS = 2
"""Pairs in a row."""
WIDTH, LINES = 62, 4
"""Characters of a line, and lines, that are shown of what the judge said."""


def outcome_of(judged: JudgedPair) -> Literal["right", "wrong", "undecided"]:
    """Whether the verdict is the truth's; a verdict on equal scores can't be told and counts as undecided."""
    if judged.verdict == -1 or judged.truth == -1:
        return "undecided"
    return "right" if judged.verdict == judged.truth else "wrong"


def choose_pairs(diary: Sequence[JudgedPair], *, count: int, shown: Shown = "all") -> list[JudgedPair]:
    """Up to `count` pairs with this outcome, evenly spread from the hardest (scores alike) to the easiest."""
    found = [judged for judged in diary if shown in ("all", outcome_of(judged))]
    if not found:
        raise DataError(f"none of the {len(diary)} pairs is {shown}: choose others")
    found.sort(key=lambda judged: abs(judged.true_scores[0] - judged.true_scores[1]))
    places = np.unique(np.linspace(0, len(found) - 1, count).round().astype(int))
    return [found[place] for place in places]


def draw_pairs(pairs: Sequence[JudgedPair], *, title: str = "") -> Figure:
    """Two pairs a row, each with its verdict, its truth and the judge's last words under it."""
    rows = -(-len(pairs) // ACROSS)
    with quiet():
        figure = Figure(figsize=(4.6 * ACROSS, 2.9 * rows + 0.5), layout="constrained")
        cells = np.atleast_1d(figure.subfigures(rows, ACROSS, squeeze=False)).reshape(-1)
        for cell, judged in zip(cells, pairs):
            _draw_pair(cell, judged)
        figure.suptitle(title or f"The goal is {pairs[0].goal}.", fontsize=9)
    return figure


def _draw_pair(cell: Figure, judged: JudgedPair) -> None:
    outcome = outcome_of(judged)
    colour = {"right": GOOD, "wrong": BAD, "undecided": GREY}[outcome]
    for side, axes in enumerate(cell.subplots(1, 2)):
        axes.imshow(np.asarray(Image.open(judged.images[side])))
        axes.set_axis_off()
        axes.set_title(f"{side}: true score {judged.true_scores[side]:.3g}", fontsize=7)
    # a model that is hardly trained says bytes that no font has
    text = "".join(c if c.isprintable() else " " for c in " / ".join(judged.replies))
    said = textwrap.wrap(text, WIDTH)
    words = "\n".join(
        [*said[: LINES - 1], *([said[LINES - 1] + " …"] if len(said) > LINES else said[LINES - 1 : LINES])]
    )
    told = f"round {judged.round}, pair {judged.pair}: {outcome}, verdict {judged.verdict}, truth {judged.truth}"
    cell.suptitle(told, fontsize=7.5, color=colour)
    cell.supxlabel(words, fontsize=6.5)
