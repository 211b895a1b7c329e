"""The embedded judge: a tiny Qwen3-VL taught on the spot, served as a real one would be, and measured over HTTP.

The simulator knows which of two pictures is closer to the goal, and tells the judge while it is taught. The agent never
learns it: all it is ever given are the judge's labels.
"""

from __future__ import annotations

import csv
import hashlib
import json
import logging
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from lookact.algorithms.image_regression import teach_to_measure
from lookact.algorithms.sft import fit
from lookact.models.vlm.loading import load_chat, save_chat
from lookact.models.vlm.tiny import TinySpec, make_tiny
from lookact.protocols import Judge
from lookact.recipes.pref_sac.config import Teaching
from lookact.recipes.pref_sac.judge_data import (
    LabelledImages,
    draw_pairs,
    levels,
    make_corpus,
    make_lessons,
    segments_of,
)
from lookact.recipes.pref_sac.tables import QUERY_COLUMNS
from lookact.seeding import derive, numpy_rng
from lookact.training.atomic_io import TEMPORARY, place, write_text
from lookact.training.evaluation import wilson_interval

logger = logging.getLogger(__name__)
REPORT, HELD_OUT, LOG = "report.json", "held_out.csv", "lessons.jsonl"
BINS = (0.0, 0.05, 0.1, 0.2, 0.4, 1.0)
"""Of the difference between two pictures, as a share of the way from the worst to the goal."""
CLEAR = 0.2
"""From this difference on a pair is clearly different."""
Report = dict[str, Any]


def teach_judge(folder: Path, gallery: LabelledImages, goal: str, teaching: Teaching, *, seed: int) -> Path:
    """Writes a judge for this goal to `folder`, whole or not at all: eyes first, then the judge's own questions."""
    temporary = folder.with_name(TEMPORARY + folder.name)
    temporary.mkdir(parents=True, exist_ok=True)
    spec = TinySpec(image_size=max(gallery.images.shape[1:3]))
    chat = load_chat(make_tiny(temporary, corpus=make_corpus(goal), spec=spec, seed=derive(seed, "judge")))
    report = step_log(temporary / LOG)
    if teaching.looks:
        numbers = np.column_stack([levels(gallery.scores, gallery.scores), gallery.states])
        teach_to_measure(
            chat,
            list(gallery.images),
            numbers,
            epochs=teaching.looks,
            rows=teaching.rows,
            lr=2 * teaching.lr,
            seed=seed,
            report=report,
        )
    lessons = make_lessons(gallery, goal, count=teaching.lessons, margin=teaching.margin, seed=seed)
    fit(
        chat,
        segments_of(chat, lessons),
        total=len(lessons),
        epochs=teaching.epochs,
        rows=teaching.rows,
        lr=teaching.lr,
        token_budget=8192,
        seed=seed,
        report=report,
    )
    place(save_chat(chat, temporary), folder)
    return folder


def measure_judge(judge: Judge, gallery: LabelledImages, goal: str, *, pairs: int, seed: int, folder: Path) -> Report:
    """The judge on pairs it was never taught; its verdicts go to a table, and rates by difficulty to a report."""
    level = levels(gallery.scores, gallery.scores)
    drawn = draw_pairs(level, pairs, numpy_rng(seed, "held-out pairs"))
    told = judge.compare([(gallery.images[i], gallery.images[j]) for i, j in drawn], goal)
    verdicts = np.array([preference.verdict for preference in told])
    first, second = gallery.scores[drawn[:, 0]], gallery.scores[drawn[:, 1]]
    with (folder / HELD_OUT).open("w", newline="") as file:
        writer = csv.writer(file)
        writer.writerow(QUERY_COLUMNS)
        # no time of day: the same judge gives the same table
        writer.writerows((a, b, verdict, 0, 0) for a, b, verdict in zip(first, second, verdicts))
    apart = np.abs(level[drawn[:, 0]] - level[drawn[:, 1]])
    report = {
        "goal": goal,
        "clear": rates(verdicts, first, second, apart >= CLEAR),
        "by_difficulty": [
            {"from": low, "to": high, **rates(verdicts, first, second, (apart >= low) & (apart < high))}
            for low, high in zip(BINS, (*BINS[1:-1], np.inf))
        ],
        "counts": dict(getattr(judge, "counts", {})),
    }
    write_text(folder / REPORT, json.dumps(report, indent=2, default=float) + "\n")
    return report


def rates(
    verdicts: NDArray[np.int64], first: NDArray[np.float64], second: NDArray[np.float64], chosen: NDArray[np.bool_]
) -> Report:
    """How often the verdicts (n,) on the chosen pairs were right, of those that were decided, and how many were not."""
    decided = chosen & (verdicts >= 0) & (first != second)
    right = int((verdicts == (second > first))[decided].sum())
    count, asked = int(decided.sum()), int(chosen.sum())
    return {
        "pairs": asked,
        "accuracy": right / count if count else None,
        "ci": list(wilson_interval(right, count)),
        "no_preference_rate": float((verdicts == -1)[chosen].mean()) if asked else None,
    }


def judge_name(folder: Path) -> str:
    """A name for a judge by its weights: replies of another one are never taken for its own."""
    digest = hashlib.blake2b(digest_size=6)
    for file in sorted(folder.glob("*.safetensors")):
        digest.update(file.read_bytes())
    return f"judge-{digest.hexdigest()}"


def step_log(path: Path) -> Callable[[dict[str, float], int], None]:
    """Keeps the numbers of each learning step as a line of JSON."""
    lines: list[str] = []

    def log(metrics: dict[str, float], step: int) -> None:
        lines.append(json.dumps({"step": step, **metrics}))
        if step % 10 == 0:
            path.write_text("\n".join(lines) + "\n")

    return log


def clear_accuracy(report: Report) -> str:
    """The report in one line, for the log."""
    clear: Sequence[Any] = (report["clear"]["accuracy"], report["clear"]["pairs"])
    return f"{clear[0]:.0%} of {clear[1]} clearly different pairs right" if clear[0] is not None else "no clear pairs"
