"""The pictures of nav-rloo: its learning curve, and sheets of episodes that were kept."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path

import numpy as np
import PIL.Image
from matplotlib.ticker import MaxNLocator, PercentFormatter

from lookact.data.episode_store import EpisodeStore
from lookact.envs.rooms.maps import draw_walk
from lookact.errors import DataError
from lookact.plots.episode_sheet import draw_episode, stack_sheets
from lookact.plots.learning_curve import draw_learning_curve, moving_average
from lookact.plots.style import save_figure
from lookact.plots.tables import read_curves
from lookact.plots.walk_grid import Walk, draw_walks
from lookact.types import Episode, Image, Observation

SMOOTHED = 10
"""Steps over which the success of training episodes is averaged."""
ROOMS = 4
"""Rooms of which all policies' paths are drawn."""
SHOWN = 3
"""Episodes on a sheet, one of them failed if there is one."""


def draw_curve(run_folder: Path, path: Path, *, marks: Sequence[tuple[str, float]], updates: int) -> None:
    """Success over training: measured on held-out rooms, and of the episodes learned from, smoothed.

    The frame is that of all `updates` and all rates, however few there are yet.
    """
    known = read_curves(run_folder)
    steps, successes = known["rollout/success_rate"]
    curves = {"training rooms": [(steps, moving_average(successes, SMOOTHED))]}
    if "eval/success_rate" in known:
        curves["held-out rooms"] = [known["eval/success_rate"]]
    figure = draw_learning_curve(
        curves,
        title="Success of the sampled policy during RL",
        x_label=f"update (training rooms: mean of the last {SMOOTHED})",
        y_label="success rate",
        marks=marks,
        x_range=(0, max(updates, steps[-1])),
        y_range=(0, 1),
    )
    axes = figure.axes[0]
    axes.yaxis.set_major_formatter(PercentFormatter(1))
    axes.xaxis.set_major_locator(MaxNLocator(integer=True))
    save_figure(figure, path)


def draw_paths(stores: Mapping[str, Path], path: Path) -> None:
    """The first rooms that all policies walked through, from above: a column a policy, by the name of its store."""
    walked = [{episode.id: episode for episode in whole_episodes(store)} for store in stores.values()]
    shared = sorted(set.intersection(*(set(episodes) for episodes in walked)))[:ROOMS]
    if shared:
        rooms = [
            (str(walked[0][name].turns[0].info["question"]), [_walk(episodes[name]) for episodes in walked])
            for name in shared
        ]
        note = f"the first {len(shared)} rooms of the test split  ·  ring: start, dot: end, red: what to find"
        PIL.Image.fromarray(draw_walks(list(stores), rooms, note=note)).save(path)


def draw_sheet(kept: Path, path: Path) -> None:
    """A sheet of a few of the episodes that an evaluation kept in the folder `kept`; none where it kept none."""
    episodes = whole_episodes(kept)
    if episodes:
        path.parent.mkdir(parents=True, exist_ok=True)
        PIL.Image.fromarray(stack_sheets([draw_one(episode) for episode in chosen(episodes)])).save(path)


def whole_episodes(kept: Path) -> list[Episode]:
    """What a store holds, without those that failed before their first turn."""
    return [episode for episode in EpisodeStore(kept).episodes() if episode.turns]


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
    return draw_episode(
        [view for observation in _seen(episode) for view in observation.images.values()],
        [str(turn.decision.action) for turn in episode.turns],
        _map(episode),
        title=str(episode.turns[0].info["question"]),
        outcome=arrived(episode),
    )


def _walk(episode: Episode) -> Walk:
    map_image, turns = _map(episode), len(episode.turns)
    if map_image is None:
        raise DataError(f"episode {episode.id} was kept without a map: there is no path to draw")
    word = "reached" if arrived(episode) else "not reached"
    return Walk(map_image, f"{word} in {turns} turn{'' if turns == 1 else 's'}", arrived(episode))


def _map(episode: Episode) -> Image | None:
    """The room from above with the path, if the episode was kept with its map."""
    poses = np.array([observation.state for observation in _seen(episode)], dtype=np.float64)
    return None if episode.floor_map is None else draw_walk(episode.floor_map, poses)


def _seen(episode: Episode) -> list[Observation]:
    return [*(turn.observation for turn in episode.turns), *([episode.last] if episode.last else [])]
