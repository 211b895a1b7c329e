"""What vqa-ppo counts and scores of its episodes."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from lookact.protocols import Tracker
from lookact.recipes.rloo.report import joined, masking_metrics, strip, transcript
from lookact.rewards.shaping import part_means
from lookact.text.answers import score_answer
from lookact.training.distributed import all_reduce_sum, gather, sum_by_name
from lookact.training.vsi_scoring import best_constant as constant_guess
from lookact.training.vsi_scoring import compare_reports as side_by_side
from lookact.training.vsi_scoring import vsi_metrics as eval_metrics
from lookact.training.vsi_scoring import vsi_report as plain_report
from lookact.types import Episode

__all__ = ["constant_guess", "eval_metrics", "plain_report", "side_by_side"]

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
