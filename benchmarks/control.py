"""Control: PPO and its rollouts, and what else learns to move, each beside the way it is commonly done."""

from __future__ import annotations

import importlib
import importlib.util
from typing import Any

from benchmarks.report import Row, plain
from lookact.training.progress import progress

PARTS = ("benchmarks.control_ppo", "benchmarks.control_sac")
"""Modules with `measures(repetitions)`, functions that each give a row, and `NOTES`."""


def main(*, repetitions: int = 5) -> dict[str, Any]:
    """Every part's rows, one thread a side."""
    parts = [importlib.import_module(name) for name in PARTS if importlib.util.find_spec(name)]
    measures = [measure for part in parts for measure in part.measures(repetitions)]
    rows: list[Row] = [measure() for measure in progress(measures, "measuring")]
    return plain(
        rows,
        about="control policies: steps of acting and learning",
        notes=[
            f"times are CPU seconds of one thread, medians over {repetitions} repetitions taken in turn; memory is "
            "each side's peak, in brackets what it grew by after loading",
            *(note for part in parts for note in part.NOTES),
        ],
    )
