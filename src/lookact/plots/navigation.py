"""Pictures of navigation: its learning curve, sheets of episodes, walks and rooms from above."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from matplotlib.ticker import MaxNLocator, PercentFormatter
from PIL import Image as PILImage
from PIL import ImageDraw

from lookact.data.episode_store import EpisodeStore
from lookact.envs.rooms.maps import PAPER, draw_map, draw_walk
from lookact.envs.rooms.render import Camera, Renderer
from lookact.envs.rooms.scene import Array, Scene, camera_pose
from lookact.errors import DataError
from lookact.plots.episode_sheet import draw_episode, stack_sheets
from lookact.plots.learning_curve import draw_learning_curve, moving_average, read_curves
from lookact.plots.style import BAD, GOOD, GREY, INK, PALE, load_font, save_figure
from lookact.types import Episode, Image, Observation

SMOOTHED = 10
"""Steps over which the success of training episodes is averaged."""
ROOMS = 4
"""Rooms of which all policies' paths are drawn."""
SHOWN = 3
"""Episodes on a sheet, one of them failed if there is one."""
WALK, GAP, MARGIN = 280, 18, 20
"""Pixels of a walk seen from above, and between and around them."""
HEADER, TITLE, CAPTION, NOTE = 34, 24, 24, 26
"""Pixels above all columns, above a row, under a tile and under all rows."""
VIEWS, TILE, ROOM_GAP = 4, 240, 8
CAMERA_HEIGHT = 1.4


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
        PILImage.fromarray(draw_walks(list(stores), rooms, note=note)).save(path)


def draw_sheet(kept: Path, path: Path) -> None:
    """A sheet of a few of the episodes that an evaluation kept in the folder `kept`; none where it kept none."""
    episodes = whole_episodes(kept)
    if episodes:
        path.parent.mkdir(parents=True, exist_ok=True)
        PILImage.fromarray(stack_sheets([draw_one(episode) for episode in chosen(episodes)])).save(path)


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


@dataclass(frozen=True)
class Walk:
    """A room from above with the way that was taken, and how it ended in a few words."""

    picture: Image
    caption: str
    reached: bool


def draw_walks(names: Sequence[str], rooms: Sequence[tuple[str, Sequence[Walk]]], *, note: str) -> Image:
    """A (h, w, 3) sheet: the policies' names on top, for each room its title and one walk a policy, a note below."""
    if not rooms or any(len(walks) != len(names) for _, walks in rooms):
        raise DataError(f"{len(names)} policies need one walk each in every one of {len(rooms)} rooms")
    width = 2 * MARGIN + len(names) * WALK + (len(names) - 1) * GAP
    height = 2 * MARGIN + HEADER + len(rooms) * (TITLE + WALK + CAPTION) + (len(rooms) - 1) * GAP + NOTE
    sheet = PILImage.new("RGB", (width, height), "white")
    draw = ImageDraw.Draw(sheet)
    lefts = [MARGIN + column * (WALK + GAP) for column in range(len(names))]
    for left, name in zip(lefts, names):
        draw.text((left, MARGIN), name, font=load_font(19, bold=True), fill=INK)
    for row, (title, walks) in enumerate(rooms):
        top = MARGIN + HEADER + row * (TITLE + WALK + CAPTION + GAP)
        draw.text((MARGIN, top), title, font=load_font(13), fill=GREY)
        for left, walk in zip(lefts, walks):
            _draw_walk(sheet, draw, walk, left, top + TITLE)
    draw.text((MARGIN, height - MARGIN), note, font=load_font(11), fill=GREY, anchor="ls")
    return np.asarray(sheet)


def _draw_walk(sheet: PILImage.Image, draw: ImageDraw.ImageDraw, walk: Walk, left: int, top: int) -> None:
    tile = PILImage.fromarray(walk.picture).resize((WALK, WALK), PILImage.Resampling.LANCZOS)
    sheet.paste(tile, (left, top))
    draw.rectangle((left, top, left + WALK - 1, top + WALK - 1), outline=PALE)
    text = f"{'✓' if walk.reached else '✗'} {walk.caption}"
    draw.text((left, top + WALK + 5), text, font=load_font(13, bold=True), fill=GOOD if walk.reached else BAD)


def draw_rooms(scenes: Sequence[Scene]) -> Image:
    """A (h, w, 3) sheet with one row a scene."""
    return grid([[draw_map(scene, size=TILE), *room_views(scene)] for scene in scenes])


def room_views(scene: Scene) -> list[Image]:
    """A few views spread over the recorded walk, or all around from the middle where there is none."""
    walk = scene.trajectory
    poses = walk[np.arange(VIEWS) * len(walk) // VIEWS] if len(walk) else _turn_around(scene)
    return list(Renderer(scene).render(poses, Camera.square(TILE)).rgb)


def grid(rows: Sequence[Sequence[Image]]) -> Image:
    """Square tiles of one size side by side, with gaps."""
    step = TILE + ROOM_GAP
    columns = max(len(row) for row in rows)
    sheet = np.empty((len(rows) * step + ROOM_GAP, columns * step + ROOM_GAP, 3), dtype=np.uint8)
    sheet[:] = PAPER
    for y, row in enumerate(rows):
        for x, tile in enumerate(row):
            sheet[ROOM_GAP + y * step :, ROOM_GAP + x * step :][:TILE, :TILE] = tile
    return sheet


def _turn_around(scene: Scene) -> Array:
    x, y = scene.floor.mean(axis=0)
    yaws = np.arange(VIEWS) * 2 * np.pi / VIEWS
    return np.stack([camera_pose(x, y, yaw, height=CAMERA_HEIGHT) for yaw in yaws])
