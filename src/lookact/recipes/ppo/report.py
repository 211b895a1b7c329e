"""What vqa-ppo counts and scores of its episodes."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from lookact.protocols import Tracker
from lookact.recipes.rloo.report import joined, masking_metrics, strip, transcript
from lookact.rewards.shaping import part_means
from lookact.text.answers import aggregate, score_answer
from lookact.training.distributed import all_reduce_sum, gather, sum_by_name
from lookact.training.evaluation import Report, score_predictions
from lookact.types import Episode

Row = dict[str, Any]
ROW_KEYS = ("id", "dataset", "scene_name", "question_type", "question", "options", "ground_truth", "prediction")


def prediction_row(episode: Episode) -> Row | None:
    """The episode's question and answer, as VSI-Bench's harness reads them; None if it never began."""
    if not episode.turns:
        return None
    info = episode.turns[-1].info
    row = {key: info[key] for key in ROW_KEYS}
    score = score_answer(info["question_type"], info["prediction"], info["ground_truth"])
    return {"episode_id": episode.id, **row, "score": score, "turns": len(episode.turns)}


def prediction_rows(episodes: Sequence[Episode]) -> list[Row]:
    """Of all processes, in the order of their episodes' ids."""
    mine = [row for episode in episodes if (row := prediction_row(episode)) is not None]
    return sorted((row for part in gather(mine) for row in part), key=lambda row: str(row["episode_id"]))


def plain_report(rows: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    """Scores by VSI-Bench's rules with their intervals, and what the best constant answers would have scored."""
    report = score_predictions(rows)
    return {
        "score": report.overall.mean,
        "per_type": {name: score.mean for name, score in report.per_type.items()},
        "per_task": {name: score.mean for name, score in report.per_task.items()},
        "ci": intervals(report),
        "constant": constant_guess(rows),
        "answered": float(np.mean([bool(row["prediction"]) for row in rows])),
        "turns": float(np.mean([row["turns"] for row in rows])),
        "questions": report.overall.questions,
        "missing": list(report.missing),
    }


def intervals(report: Report) -> dict[str, Any]:
    """95% intervals of everything a report tells."""
    return {
        "score": [report.overall.low, report.overall.high],
        "per_type": {name: [score.low, score.high] for name, score in report.per_type.items()},
        "per_task": {name: [score.low, score.high] for name, score in report.per_task.items()},
    }


def constant_guess(rows: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    """The score of the best constant answer to each type, chosen with these very answers known."""
    truths: dict[str, list[str]] = {}
    for row in rows:
        truths.setdefault(str(row["question_type"]), []).append(str(row["ground_truth"]))
    best = {
        kind: max(float(np.mean([score_answer(kind, guess, truth) for truth in known])) for guess in set(known))
        for kind, known in truths.items()
    }
    return {"score": aggregate(best.items()).overall, "per_type": best}


def side_by_side(before: Mapping[str, Row], after: Mapping[str, Row]) -> dict[str, Any]:
    """What the best constant answers score on the test questions, and what the start and the end of RL do."""
    constant = {kind: report["constant"] for kind, report in after.items()}
    return {
        "best_constant": {kind: {"score": best["score"], **best["per_type"]} for kind, best in constant.items()},
        "before": {kind: in_short(report) for kind, report in before.items()},
        "after": {kind: in_short(report) for kind, report in after.items()},
    }


def in_short(report: Row) -> Row:
    """A report's scores, those of its types beside the mean."""
    kept = {name: report[name] for name in ("answered", "turns", "questions")}
    ci = {"score": report["ci"]["score"], **report["ci"]["per_type"]}
    return {"score": report["score"], **report["per_type"], **kept, "ci": ci}


def eval_metrics(report: Mapping[str, Any]) -> dict[str, float]:
    """The numbers of `plain_report` that are followed while training."""
    per_type = {f"eval/score_{name}": float(score) for name, score in report["per_type"].items()}
    return {
        "eval/score": report["score"],
        "eval/answered": report["answered"],
        "eval/turns": report["turns"],
    } | per_type


def rollout_metrics(episodes: Sequence[Episode]) -> dict[str, float]:
    """What a step's episodes were like, over all processes."""
    numbers = joined(gather(measure(episodes)))
    return {f"rollout/{name}": float(values.mean()) for name, values in numbers.items()} | masking_metrics(episodes)


def reward_metrics(episodes: Sequence[Episode]) -> dict[str, float]:
    """What each part of the reward paid an episode, over all processes."""
    parts = {name: float(paid) for name, paid in part_means(episodes).items()}
    counted = sum_by_name({name: paid * len(episodes) for name, paid in parts.items()})
    count = all_reduce_sum(float(len(episodes)))
    return {f"reward/{name}": paid / count for name, paid in counted.items()}


def measure(episodes: Sequence[Episode]) -> dict[str, NDArray[np.float64]]:
    """One number an episode of each kind; an episode that failed before its first turn counts as a failure."""
    last = [episode.turns[-1].info if episode.turns else {} for episode in episodes]
    valid = [np.mean([t.info["valid_action"] for t in e.turns]) if e.turns else 0.0 for e in episodes]
    return {
        "score": np.array([float(info.get("answer_reward", 0.0)) for info in last]),
        "answered": np.array([float(info.get("answered", False)) for info in last]),
        "seen_share": np.array([float(info.get("seen_share", 0.0)) for info in last]),
        "turns": np.array([float(len(episode.turns)) for episode in episodes]),
        "valid_action_rate": np.array(valid),
        "error_rate": np.array([float(episode.error is not None) for episode in episodes]),
        "tokens": np.array([float(sum(len(t.decision.logprobs) for t in e.turns)) for e in episodes]),
    }


def show_episodes(tracker: Tracker, episodes: Sequence[Episode], step: int, *, count: int = 2) -> None:
    """Example episodes for whoever watches the run."""
    for number, episode in enumerate([episode for episode in episodes if episode.turns][:count]):
        tracker.image(f"rollout/views_{number}", strip(episode), step)
        tracker.text(f"rollout/words_{number}", transcript(episode), step)
