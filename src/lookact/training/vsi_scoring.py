"""VSI-Bench scores of predictions: per question type, per task and overall, with bootstrap intervals."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np

from lookact.data.jsonl import read_rows
from lookact.errors import DataError
from lookact.text.answers import (
    QUESTION_TYPES,
    TASK_OF_TYPE,
    TASKS,
    Scoring,
    aggregate,
    score_answer,
)
from lookact.training.evaluation import check_confidence, percentiles, resampled_means

NEEDED = ("id", "question_type", "ground_truth", "prediction")


@dataclass(frozen=True)
class Score:
    """A mean in [0, 1] over questions, with its bootstrap interval."""

    mean: float
    low: float
    high: float
    questions: int


@dataclass(frozen=True)
class Scores:
    """The scores of a set of predictions; `dataclasses.asdict` makes it JSON."""

    per_type: Mapping[str, Score]
    per_task: Mapping[str, Score]
    """A task's score is the mean of its types."""
    overall: Score
    """The mean of the tasks (macro)."""
    micro: Score
    """The mean of the questions."""
    missing: tuple[str, ...]
    """Tasks without a question: the overall score is comparable to others only when there are none."""
    duplicates: int = 0
    """Rows that repeat another word for word; each question counts once."""


def load_predictions(path: str | Path) -> list[dict[str, Any]]:
    """The rows of a JSONL file: a question's fields and its "prediction"."""
    return list(read_rows(Path(path)))


def score_predictions(
    rows: Iterable[Mapping[str, Any]],
    *,
    scoring: Scoring = "exact",
    confidence: float = 0.95,
    resamples: int = 2000,
    seed: int = 0,
) -> Scores:
    """Scores per type, per task and overall. The bootstrap draws questions anew within each type."""
    unique, duplicates = _without_duplicates(rows)
    scores: dict[str, list[float]] = {}
    for row in unique:
        kind = str(row["question_type"])
        score = score_answer(kind, str(row["prediction"]), str(row["ground_truth"]), scoring=scoring)
        scores.setdefault(kind, []).append(score)
    found = summarise_scores(scores, scoring=scoring, confidence=confidence, resamples=resamples, seed=seed)
    return replace(found, duplicates=duplicates)


def summarise_scores(
    scores: Mapping[str, Sequence[float]],
    *,
    scoring: Scoring = "exact",
    confidence: float = 0.95,
    resamples: int = 2000,
    seed: int = 0,
) -> Scores:
    """The same from the scores of each type's questions, or from differences of two scores."""
    check_confidence(confidence)
    means = aggregate(((kind, score) for kind, group in scores.items() for score in group), scoring=scoring)
    draws = {kind: resampled_means(np.array(scores[kind]), resamples, seed, kind) for kind in means.per_type}
    kinds_of = {task: [kind for kind in draws if TASK_OF_TYPE[kind] == task] for task in means.per_task}
    task_draws = {task: np.mean([draws[kind] for kind in kinds], axis=0) for task, kinds in kinds_of.items()}
    sizes = {task: sum(len(scores[kind]) for kind in kinds) for task, kinds in kinds_of.items()}
    total = sum(sizes.values())
    shares = [(len(scores[kind]) / total, draws[kind]) for kind in draws]
    micro = sum(share * float(np.mean(scores[kind])) for kind, (share, _) in zip(draws, shares))
    micro_draws = np.sum([share * drawn for share, drawn in shares], axis=0)
    return Scores(
        {kind: Score(mean, *percentiles(draws[kind], confidence), len(scores[kind]))
         for kind, mean in means.per_type.items()},
        {task: Score(mean, *percentiles(task_draws[task], confidence), sizes[task])
         for task, mean in means.per_task.items()},
        Score(means.overall, *percentiles(np.mean(list(task_draws.values()), axis=0), confidence), total),
        Score(micro, *percentiles(micro_draws, confidence), total),
        tuple(task for task in TASKS if task not in sizes),
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


def vsi_report(rows: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    """A plain report of predictions: scores with their intervals, and what the best constant answers would score."""
    scores = score_predictions(rows)
    groups = {"per_type": scores.per_type, "per_task": scores.per_task}
    bounds = {kind: {name: [one.low, one.high] for name, one in group.items()} for kind, group in groups.items()}
    return {
        "score": scores.overall.mean,
        **{kind: {name: one.mean for name, one in group.items()} for kind, group in groups.items()},
        "ci": {"score": [scores.overall.low, scores.overall.high], **bounds},
        "constant": best_constant(rows),
        "answered": float(np.mean([bool(row["prediction"]) for row in rows])),
        "turns": float(np.mean([row["turns"] for row in rows])),
        "questions": scores.overall.questions,
        "missing": list(scores.missing),
    }


def best_constant(rows: Iterable[Mapping[str, Any]]) -> dict[str, Any]:
    """The score of the best constant answer to each type, chosen with these very answers known."""
    truths: dict[str, list[str]] = {}
    for row in rows:
        truths.setdefault(str(row["question_type"]), []).append(str(row["ground_truth"]))
    best = {
        kind: max(float(np.mean([score_answer(kind, guess, truth) for truth in known])) for guess in set(known))
        for kind, known in truths.items()
    }
    return {"score": aggregate(best.items()).overall, "per_type": best}


def vsi_metrics(report: Mapping[str, Any], prefix: str = "eval") -> dict[str, float]:
    """The numbers of `vsi_report` that are followed while training."""
    plain = {f"{prefix}/{name}": float(report[name]) for name in ("score", "answered", "turns")}
    return plain | {f"{prefix}/score_{name}": float(score) for name, score in report["per_type"].items()}


def compare_reports(before: Mapping[str, dict[str, Any]], after: Mapping[str, dict[str, Any]]) -> dict[str, Any]:
    """The best constant answers, the start and the end of RL side by side, types beside the mean."""

    def short(report: dict[str, Any]) -> dict[str, Any]:
        kept = {name: report[name] for name in ("answered", "turns", "questions")}
        ci = {"score": report["ci"]["score"], **report["ci"]["per_type"]}
        return {"score": report["score"], **report["per_type"], **kept, "ci": ci}

    constant = {kind: report["constant"] for kind, report in after.items()}
    return {
        "best_constant": {kind: {"score": best["score"], **best["per_type"]} for kind, best in constant.items()},
        "before": {kind: short(report) for kind, report in before.items()},
        "after": {kind: short(report) for kind, report in after.items()},
    }
