"""What nav-rloo counts, evaluates and shows."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from lookact.data.quality import summarise
from lookact.errors import ParseError
from lookact.protocols import Actor, Tracker
from lookact.rollout.collect import collect
from lookact.rollout.episode_specs import make_specs
from lookact.tasks.navigation import make_env
from lookact.tasks.settings import NavigationConfig
from lookact.text.actions import parse_action
from lookact.training.distributed import gather, rank, world_size
from lookact.training.evaluation import bootstrap_interval, wilson_interval
from lookact.training.progress import progress
from lookact.types import Episode, Image

Numbers = dict[str, NDArray[np.float64]]


@dataclass(frozen=True)
class Report:
    """An evaluation: means over episodes, each with its 95% interval."""

    values: dict[str, float]
    intervals: dict[str, tuple[float, float]]
    episodes: int

    def metrics(self, prefix: str) -> dict[str, float]:
        return {f"{prefix}/{name}": value for name, value in self.values.items()}

    def plain(self) -> dict[str, Any]:
        return {**self.values, "episodes": self.episodes, "ci": {k: list(v) for k, v in self.intervals.items()}}


def evaluate_actor(
    actor: Actor, world: NavigationConfig, *, seed: int, split: str, episodes: int, rows: int
) -> tuple[Report, list[Episode]]:
    """The actor on `episodes` starts of a split; the processes share them. Returns this process's episodes too."""
    plans = make_specs(seed, split, groups=episodes)[rank() :: world_size()]
    with progress(len(plans), "evaluating") as bar:
        envs = [make_env(world) for _ in range(min(rows, len(plans)))]
        ended = collect(plans, envs, actor, finished=lambda episode: bar.advance())
    numbers = joined(gather(measure(ended)))
    means = {
        "success_rate": numbers["success"],
        "spl": numbers["spl"],
        "turns": numbers["turns"],
        "valid_action_rate": numbers["valid_action"],
        "collisions": numbers["collisions"],
    }
    intervals = {name: bootstrap_interval(values) for name, values in means.items()}
    intervals["success_rate"] = wilson_interval(int(numbers["success"].sum()), len(numbers["success"]))
    report = Report({name: float(values.mean()) for name, values in means.items()}, intervals, len(numbers["success"]))
    return report, ended


def measure(episodes: Sequence[Episode]) -> Numbers:
    """One number an episode of each kind; an episode that failed before its first turn counts as a failure."""
    last = [episode.turns[-1].info if episode.turns else {} for episode in episodes]
    valid = [np.mean([t.info["valid_action"] for t in e.turns]) if e.turns else 0.0 for e in episodes]
    return {
        "success": np.array([float(info.get("success", 0.0)) for info in last]),
        "spl": np.array([float(info.get("spl", 0.0)) for info in last]),
        "collisions": np.array([float(info.get("collisions", 0.0)) for info in last]),
        "turns": np.array([float(len(episode.turns)) for episode in episodes]),
        "return": np.array([episode.total_reward for episode in episodes]),
        "valid_action": np.array(valid),
        "error": np.array([float(episode.error is not None) for episode in episodes]),
        "tokens": np.array([float(sum(len(t.decision.logprobs) for t in e.turns)) for e in episodes]),
    }


def joined(parts: Sequence[Numbers]) -> Numbers:
    """The numbers of all processes, one after the other."""
    return {name: np.concatenate([part[name] for part in parts]) for name in parts[0]}


def rollout_metrics(episodes: Sequence[Episode]) -> dict[str, float]:
    """What a step's episodes were like, over all processes."""
    numbers = joined(gather(measure(episodes)))
    named = {
        "success": "success_rate",
        "spl": "spl",
        "return": "return",
        "turns": "turns",
        "valid_action": "valid_action_rate",
        "error": "error_rate",
        "tokens": "tokens",
    }
    return {f"rollout/{name}": float(numbers[key].mean()) for key, name in named.items()} | masking_metrics(episodes)


def masking_metrics(episodes: Sequence[Episode]) -> dict[str, float]:
    """How actions were found in replies, as shares of this process's turns and episodes."""
    summary = summarise(episodes)
    turns = max(1, sum(summary.methods.values()))
    shares = {f"rollout/mask_{method}": count / turns for method, count in summary.methods.items()}
    return shares | {"rollout/dropout_rate": summary.dropout_rate}


def action_values(episodes: Sequence[Episode]) -> dict[str, NDArray[np.float64]]:
    """Every rotation and step that was asked for, for histograms."""
    actions = []
    for turn in (turn for episode in episodes for turn in episode.turns):
        try:
            actions.append(parse_action(str(turn.decision.action)))
        except ParseError:
            continue
    names = ("rotation_angle_degrees", "forward_meters")
    return {name: np.array([action[name] for action in actions]) for name in names}


def show_episodes(tracker: Tracker, episodes: Sequence[Episode], step: int, *, count: int = 2) -> None:
    """Example episodes, and the distribution of actions, for whoever watches the run."""
    # an environment that failed at once left nothing to show
    seen = [episode for episode in episodes if episode.turns]
    for number, episode in enumerate(seen[:count]):
        tracker.image(f"rollout/views_{number}", strip(episode), step)
        tracker.text(f"rollout/words_{number}", transcript(episode), step)
    for name, values in action_values(episodes).items():
        if len(values):
            tracker.histogram(f"rollout/{name}", values, step)


def strip(episode: Episode) -> Image:
    """An episode's views side by side."""
    return np.concatenate([view for turn in episode.turns for view in turn.observation.images.values()], axis=1)


def transcript(episode: Episode) -> str:
    """What was asked, seen and said, turn by turn."""
    lines = [f"{turn.observation.text}\n    {turn.decision.action}" for turn in episode.turns]
    return "\n".join([*lines, f"return {episode.total_reward:.2f}"])
