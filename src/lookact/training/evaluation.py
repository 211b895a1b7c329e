"""Rates and scores with their confidence intervals, and the scoring of VSI-Bench predictions."""

from __future__ import annotations

import json
import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import NormalDist
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from lookact.errors import DataError
from lookact.seeding import numpy_rng
from lookact.text.answers import QUESTION_TYPES, TASK_OF_TYPE, TASKS, aggregate, score_answer

Array = NDArray[np.float64]

BLOCK = 4_000_000
"""Draws held in memory at once."""
NEEDED = ("id", "question_type", "ground_truth", "prediction")


@dataclass(frozen=True)
class Score:
    """A mean in [0, 1] over questions, with its bootstrap interval."""

    mean: float
    low: float
    high: float
    questions: int


@dataclass(frozen=True)
class Report:
    """The scores of a set of predictions; `dataclasses.asdict` makes it JSON."""

    per_type: Mapping[str, Score]
    per_task: Mapping[str, Score]
    """A task's score is the mean of its types."""
    overall: Score
    """The mean of the tasks that were asked."""
    missing: tuple[str, ...]
    """Tasks without a question: the overall score is comparable to others only when there are none."""
    duplicates: int
    """Rows that repeat another word for word; each question counts once."""


def wilson_interval(successes: int, n: int, confidence: float = 0.95) -> tuple[float, float]:
    """Wilson's score interval of a rate (JASA 22, 1927). With no trials nothing is known: (0, 1)."""
    _check_confidence(confidence)
    if not 0 <= successes <= n:
        raise DataError(f"{successes} successes in {n} trials: the first must lie between 0 and the second")
    if n == 0:
        return 0.0, 1.0
    z = NormalDist().inv_cdf(0.5 + confidence / 2)
    rate, shrink = successes / n, 1 + z * z / n
    middle = (rate + z * z / (2 * n)) / shrink
    half = z / shrink * math.sqrt(rate * (1 - rate) / n + z * z / (4 * n * n))
    # at the ends the bound is exact; rounding must not move it
    return (0.0 if successes == 0 else middle - half), (1.0 if successes == n else middle + half)


def bootstrap_interval(
    values: ArrayLike, *, confidence: float = 0.95, resamples: int = 2000, seed: int = 0
) -> tuple[float, float]:
    """The percentile interval of the mean of `values` (n,)."""
    _check_confidence(confidence)
    return _percentiles(_resampled_means(np.asarray(values, dtype=np.float64), resamples, seed, "values"), confidence)


def load_predictions(path: str | Path) -> list[dict[str, Any]]:
    """The rows of a JSONL file: a question's fields and its "prediction"."""
    path = Path(path)
    rows = []
    try:
        lines = path.read_text().splitlines()
    except (OSError, UnicodeDecodeError) as error:
        raise DataError(f"{path}: cannot be read ({type(error).__name__})") from None
    for number, line in enumerate(lines, start=1):
        if line.strip():
            try:
                rows.append(dict(json.loads(line)))
            except (ValueError, TypeError):
                raise DataError(f"{path}: line {number} is not a JSON object") from None
    return rows


def score_predictions(
    rows: Iterable[Mapping[str, Any]], *, confidence: float = 0.95, resamples: int = 2000, seed: int = 0
) -> Report:
    """Scores per type, per task and overall. The bootstrap draws questions anew within each type."""
    _check_confidence(confidence)
    unique, duplicates = _without_duplicates(rows)
    scores: dict[str, list[float]] = {}
    for row in unique:
        kind = str(row["question_type"])
        scores.setdefault(kind, []).append(score_answer(kind, str(row["prediction"]), str(row["ground_truth"])))
    means = aggregate((kind, score) for kind, group in scores.items() for score in group)
    draws = {kind: _resampled_means(np.array(scores[kind]), resamples, seed, kind) for kind in means.per_type}
    kinds_of = {task: [kind for kind in draws if TASK_OF_TYPE[kind] == task] for task in means.per_task}
    task_draws = {task: _mean([draws[kind] for kind in kinds]) for task, kinds in kinds_of.items()}
    sizes = {task: sum(len(scores[kind]) for kind in kinds) for task, kinds in kinds_of.items()}
    return Report(
        {kind: Score(mean, *_percentiles(draws[kind], confidence), len(scores[kind]))
         for kind, mean in means.per_type.items()},
        {task: Score(mean, *_percentiles(task_draws[task], confidence), sizes[task])
         for task, mean in means.per_task.items()},
        Score(means.overall, *_percentiles(_mean(list(task_draws.values())), confidence), len(unique)),
        tuple(task for task in TASKS if task not in means.per_task),
        duplicates,
    )  # fmt: skip


def _without_duplicates(rows: Iterable[Mapping[str, Any]]) -> tuple[list[Mapping[str, Any]], int]:
    """The rows, each question once, and how many were dropped. Two answers to one question are refused."""
    kept: dict[tuple[str, str], Mapping[str, Any]] = {}
    duplicates = 0
    for number, row in enumerate(rows, start=1):
        missing = [name for name in NEEDED if row.get(name) is None]
        if missing:
            raise DataError(f"prediction row {number} lacks {', '.join(missing)}")
        if row["question_type"] not in TASK_OF_TYPE:
            known = ", ".join(QUESTION_TYPES)
            raise DataError(f"prediction row {number} has the unknown type {row['question_type']!r}: one of {known}")
        first = kept.setdefault((str(row.get("dataset")), str(row["id"])), row)
        if first is row:
            continue
        if any(first[name] != row[name] for name in NEEDED):
            raise DataError(f"prediction row {number} answers question {row['id']} a second time: keep one of them")
        duplicates += 1
    return list(kept.values()), duplicates


def _resampled_means(values: Array, resamples: int, seed: int, name: str) -> Array:
    """(resamples,) means of draws with replacement. Equal values are drawn together: scores take few values."""
    if values.ndim != 1 or not len(values) or not np.isfinite(values).all() or resamples < 1:
        raise DataError(f"a bootstrap needs finite values (n,) and resamples, found {values.shape} and {resamples}")
    rng = numpy_rng(seed, "bootstrap", name)
    levels, counts = np.unique(values, return_counts=True)
    means = np.empty(resamples)
    block = max(1, BLOCK // len(levels))
    for start in range(0, resamples, block):
        size = min(block, resamples - start)
        means[start : start + size] = rng.multinomial(len(values), counts / len(values), size) @ levels / len(values)
    return means


def _mean(draws: Sequence[Array]) -> Array:
    mean: Array = np.mean(draws, axis=0)
    return mean


def _percentiles(means: Array, confidence: float) -> tuple[float, float]:
    low, high = np.quantile(means, [(1 - confidence) / 2, (1 + confidence) / 2])
    return float(low), float(high)


def _check_confidence(confidence: float) -> None:
    if not 0 < confidence < 1:
        raise DataError(f"confidence {confidence} must lie between 0 and 1, as 0.95 does")
