"""VSI-Bench (arXiv:2412.14171): its question types, its prompts, and its scoring in two ways.

Letters are scored by exact match, numbers by mean relative accuracy. "official" gives what the published code gives, to
the last bit; "exact" forgives blanks before the answer and counts an error on a threshold as within it.
"""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import reduce
from operator import add
from typing import Literal

import numpy as np

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
DIRECTION = "relative_direction"
DIRECTION_TYPES = tuple(name for name, task in TASK_OF_TYPE.items() if task == DIRECTION)
Scoring = Literal["official", "exact"]
PREFIX = "These are frames of a video."

_TOLERATED = tuple((20 - step) / 20 for step in range(10, 20))
"""The relative errors 1 - t for t = .50, .55, ..., .95."""
_ROUNDING = 1e-9
_PUBLISHED = 1 - np.linspace(0.5, 0.95, 10)
"""The same as the published code computes them: some lie a last bit below the decimal."""


@dataclass(frozen=True)
class AnswerScores:
    """Mean scores in [0, 1] of the types and tasks that were asked."""

    per_type: Mapping[str, float]
    per_task: Mapping[str, float]
    """A task's score is the mean of its types, not of its questions."""
    overall: float
    """The mean of the tasks."""


def official_prompt(question_type: str, question: str, options: Sequence[str] | None) -> str:
    """What VSI-Bench asks after the frames."""
    if is_numeric(question_type):
        return "\n".join([PREFIX, question, "Please answer the question using a single word or phrase."])
    if not options:
        raise DataError(f"a question of the type {question_type} has no options")
    last = "Answer with the option's letter from the given choices directly."
    return "\n".join([PREFIX, question, "Options:", *options, last])


def is_numeric(question_type: str) -> bool:
    """Whether the answer is a number rather than a letter. Raises DataError for an unknown type."""
    _check(question_type)
    return question_type in NUMERIC_TYPES


def score_answer(
    question_type: str, prediction: str, ground_truth: str | float, *, scoring: Scoring = "exact"
) -> float:
    """A reply's score in [0, 1]; only its first space-separated word counts, and one that can't be read scores 0."""
    if scoring == "official":
        return _official_score(question_type, prediction, str(ground_truth))
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


def _official_score(question_type: str, prediction: str, ground_truth: str) -> float:
    # a reply that begins with a blank has an empty first word
    word = prediction.split(" ")[0].rstrip(".").strip()
    if not is_numeric(question_type):
        return float(word.lower() == ground_truth.lower())
    try:
        predicted, true = float(word), float(ground_truth)
    except ValueError:
        return 0.0
    if true == 0:
        raise DataError("the true number is 0, by which the published score divides: leave the question out")
    return float((abs(predicted - true) / true <= _PUBLISHED).mean())


def aggregate(rows: Iterable[tuple[str, float]], *, scoring: Scoring = "exact") -> AnswerScores:
    """Scores per type, per task and overall from (question_type, score) of each question. Raises DataError if none.

    "official" sums in the published code's order. Where only some of the three kinds of relative direction were asked,
    that code fails or takes each for a task; here their mean is the task in both ways.
    """
    scores: dict[str, list[float]] = defaultdict(list)
    for question_type, score in rows:
        _check(question_type)
        scores[question_type].append(score)
    if not scores:
        raise DataError("no questions to aggregate: score at least one")
    if scoring == "official":
        return _official_means(scores)
    per_type = {name: _mean(scores[name]) for name in QUESTION_TYPES if name in scores}
    per_task = {
        task: _mean([score for name, score in per_type.items() if TASK_OF_TYPE[name] == task])
        for task in dict.fromkeys(TASK_OF_TYPE[name] for name in per_type)
    }
    return AnswerScores(per_type, per_task, _mean(list(per_task.values())))


def _official_means(scores: Mapping[str, Sequence[float]]) -> AnswerScores:
    """Sums in the published code's order: types by name, relative direction last."""
    per_type = {name: float(np.sum(scores[name]) / len(scores[name])) for name in sorted(scores)}
    per_task = {TASK_OF_TYPE[name]: mean for name, mean in per_type.items() if name not in DIRECTION_TYPES}
    if asked := [per_type[name] for name in DIRECTION_TYPES if name in per_type]:
        per_task[DIRECTION] = _added(asked) / len(asked)
    return AnswerScores(per_type, per_task, _added(per_task.values()) / len(per_task))


def _added(values: Iterable[float]) -> float:
    """One after the other: from Python 3.12 on `sum` carries what rounding loses."""
    return reduce(add, values, 0.0)


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
