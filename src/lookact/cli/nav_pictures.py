"""The pictures of nav-rloo: its learning curve, and sheets of episodes walked again from what was kept of them."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import PIL.Image

from lookact.envs.scenes.maps import draw_map
from lookact.envs.scenes.scene import camera_pose
from lookact.plots.episode_sheet import draw_episode, stack_sheets
from lookact.plots.learning_curve import draw_learning_curve, moving_average, read_metrics
from lookact.plots.style import save_figure
from lookact.recipes.nav_config import Config, World
from lookact.recipes.nav_world import make_env, make_plans
from lookact.types import Image, Observation, Plan

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


def draw_sheet(cfg: Config, kept: Path, path: Path, *, episodes: int) -> None:
    """A sheet of a few of the episodes that an evaluation of `episodes` test starts kept in the folder `kept`."""
    courses = []
    for plan in make_plans(cfg.seed, "test", groups=episodes):
        file = kept / f"{plan.id}.json"
        if file.exists():
            courses.append((plan, json.loads(file.read_text(encoding="utf-8"))))
    if courses:
        sheet = stack_sheets([walk_again(cfg.world, *course) for course in chosen(courses)])
        PIL.Image.fromarray(sheet).save(path)


def chosen(courses: Sequence[tuple[Plan, dict[str, Any]]]) -> list[tuple[Plan, dict[str, Any]]]:
    """`SHOWN` of them: successes first, but one failure if there is one."""
    good = [course for course in courses if course[1]["success"]]
    bad = [course for course in courses if not course[1]["success"]]
    first = good[: SHOWN - 1] if bad else good[:SHOWN]
    return first + bad[: SHOWN - len(first)]


def walk_again(world: World, plan: Plan, course: dict[str, Any]) -> Image:
    """The sheet (h, w, 3) of one episode; the same start and replies lead to the same views."""
    env = make_env(world)
    replies = [turn["reply"] for turn in course["turns"]]
    seen: list[Observation] = [env.reset(seed=plan.seed, options=plan.options)[0]]
    for reply in replies:
        observation, _, _, _, info = env.step(reply)
        seen.append(observation)
    task = env.env.unwrapped.task  # type: ignore[attr-defined]
    poses = np.array([observation.state for observation in seen], dtype=np.float64)
    x, y, yaw, height = poses[-1].tolist()
    room = draw_map(
        task.place.scene, paths=[poses[:, :2]], poses=[camera_pose(x, y, yaw, height=height)], goal=task.goal
    )
    views = [view for observation in seen for view in observation.images.values()]
    return draw_episode(views, replies, room, title=task.question, outcome=bool(info["success"]))
