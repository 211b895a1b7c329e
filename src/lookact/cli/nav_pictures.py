"""The pictures of nav-rloo: its learning curve, and sheets of episodes that were kept."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import numpy as np
import PIL.Image

from lookact.data.store import EpisodeStore
from lookact.envs.scenes.maps import draw_walk
from lookact.plots.episode_sheet import draw_episode, stack_sheets
from lookact.plots.learning_curve import draw_learning_curve, moving_average, read_metrics
from lookact.plots.style import save_figure
from lookact.types import Episode, Image

SMOOTHED = 10
"""Steps over which the success of training episodes is averaged."""
SHOWN = 3
"""Episodes on a sheet, one of them failed if there is one."""


def draw_curve(run_folder: Path, path: Path, *, marks: Sequence[tuple[str, float]]) -> None:
    """Success over training: measured on held-out rooms, and of the episodes learned from, smoothed."""
    steps, successes = read_metrics(run_folder, "rollout/success_rate")
    curves = {
        "held-out rooms": [read_metrics(run_folder, "eval/success_rate")],
        "training rooms": [(steps, moving_average(successes, SMOOTHED))],
    }
    figure = draw_learning_curve(
        curves,
        title="Sampled success while reinforcing",
        x_label=f"step (training rooms: mean of the last {SMOOTHED})",
        y_label="success rate",
        marks=marks,
    )
    save_figure(figure, path)


def draw_sheet(kept: Path, path: Path) -> None:
    """A sheet of a few of the episodes that an evaluation kept in the folder `kept`; none where it kept none."""
    episodes = [episode for episode in EpisodeStore(kept).episodes() if episode.turns]
    if episodes:
        path.parent.mkdir(parents=True, exist_ok=True)
        PIL.Image.fromarray(stack_sheets([draw_one(episode) for episode in chosen(episodes)])).save(path)


def chosen(episodes: Sequence[Episode]) -> list[Episode]:
    """`SHOWN` of them: successes first, but one failure if there is one."""
    good = [episode for episode in episodes if arrived(episode)]
    bad = [episode for episode in episodes if not arrived(episode)]
    first = good[: SHOWN - 1] if bad else good[:SHOWN]
    return first + bad[: SHOWN - len(first)]


def arrived(episode: Episode) -> bool:
    """Whether it ended well."""
    return bool(episode.turns[-1].info["success"])


def draw_one(episode: Episode) -> Image:
    """The sheet (h, w, 3) of one episode: the path on the map, and what was seen, done and said."""
    seen = [*(turn.observation for turn in episode.turns), *([episode.last] if episode.last else [])]
    poses = np.array([observation.state for observation in seen], dtype=np.float64)
    return draw_episode(
        [view for observation in seen for view in observation.images.values()],
        [str(turn.decision.action) for turn in episode.turns],
        None if episode.floor_map is None else draw_walk(episode.floor_map, poses),
        title=str(episode.turns[0].info["question"]),
        outcome=arrived(episode),
    )
