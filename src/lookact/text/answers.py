"""VSI-Bench scoring (arXiv:2412.14171): letters by exact match, numbers by mean relative accuracy."""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from lookact.errors import DataError

TASK_OF_TYPE = {
    "object_counting": "count",
    "object_abs_distance": "absolute_distance",
    "object_size_estimation": "object_size",
    "room_size_estimation": "room_size",
    "object_rel_distance": "relative_distance",
    "object_rel_direction_easy": "relative_direction",
    "object_rel_direction_medium": "relative_direction",
    "object_rel_direction_hard": "relative_direction",
    "route_planning": "route_planning",
    "obj_appearance_order": "appearance_order",
}
"""The 10 question types and the 8 tasks they belong to."""

QUESTION_TYPES = tuple(TASK_OF_TYPE)
TASKS = tuple(dict.fromkeys(TASK_OF_TYPE.values()))
NUMERIC_TYPES = ("object_counting", "object_abs_distance", "object_size_estimation", "room_size_estimation")

_TOLERATED = tuple((20 - step) / 20 for step in range(10, 20))
"""The relative errors 1 - t for t = .50, .55, ..., .95."""
_ROUNDING = 1e-9


@dataclass(frozen=True)
class AnswerScores:
    """Mean scores in [0, 1] of the types and tasks that were asked."""

    per_type: Mapping[str, float]
    per_task: Mapping[str, float]
    """A task's score is the mean of its types, not of its questions."""
    overall: float
    """The mean of the tasks."""


def is_numeric(question_type: str) -> bool:
    """Whether the answer is a number rather than a letter. Raises DataError for an unknown type."""
    _check(question_type)
    return question_type in NUMERIC_TYPES


def score_answer(question_type: str, prediction: str, ground_truth: str | float) -> float:
    """A reply's score in [0, 1]; only its first space-separated word counts, and one that can't be read scores 0."""
    word = prediction.strip().split(" ")[0].rstrip(".").strip()
    if is_numeric(question_type):
        return mean_relative_accuracy(_number(word), _number(str(ground_truth)))
    return float(word.lower() == str(ground_truth).strip().lower())


def mean_relative_accuracy(predicted: float, true: float) -> float:
    """The share of t in .50, .55, ..., .95 for which |predicted - true| / |true| <= 1 - t; NaN scores 0.

    Errors on a threshold count, whatever the last binary digit says. A true value of 0 must be met exactly.
    """
    if true == 0:
        return float(predicted == 0)
    error = abs(predicted - true) / abs(true)
    return sum(error <= limit + _ROUNDING for limit in _TOLERATED) / len(_TOLERATED)


def aggregate(rows: Iterable[tuple[str, float]]) -> AnswerScores:
    """Scores per type, per task and overall from (question_type, score) of each question. Raises DataError if none."""
    scores: dict[str, list[float]] = defaultdict(list)
    for question_type, score in rows:
        _check(question_type)
        scores[question_type].append(score)
    if not scores:
        raise DataError("no questions to aggregate: score at least one")
    per_type = {name: _mean(scores[name]) for name in QUESTION_TYPES if name in scores}
    per_task = {
        task: _mean([score for name, score in per_type.items() if TASK_OF_TYPE[name] == task])
        for task in dict.fromkeys(TASK_OF_TYPE[name] for name in per_type)
    }
    return AnswerScores(per_type, per_task, _mean(list(per_task.values())))


def _mean(values: list[float]) -> float:
    return math.fsum(values) / len(values)


def _number(word: str) -> float:
    try:
        number = float(word)
    except ValueError:
        return math.nan
    return number if math.isfinite(number) else math.nan


def _check(question_type: str) -> None:
    if question_type not in TASK_OF_TYPE:
        raise DataError(f"unknown question type {question_type!r}: one of {', '.join(QUESTION_TYPES)}")
