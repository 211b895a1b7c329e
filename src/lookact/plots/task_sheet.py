"""Contact sheet of control tasks as a judge sees them: an expert's episode a row, the goal in words over it."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from matplotlib.figure import Figure

from lookact.envs.control.fixed_horizon import horizon_of, make_control_env
from lookact.envs.control.metaworld_views import view_of
from lookact.envs.control.scripted_experts import controller_of
from lookact.envs.control.task_names import is_metaworld
from lookact.judges.goals import goal_of
from lookact.plots.style import GOOD, INK, quiet

HORIZON, ACTION_REPEAT = 30, 4
"""Of the episode that is shown: as the preset `arm` has it."""


def expert_pictures(task: str, *, count: int, size: int, seed: int = 0) -> list[tuple[Any, float, bool]]:
    """`count` moments of a scripted expert's episode, evenly spread: picture, true reward, whether it has succeeded."""
    view: dict[str, Any] = {"camera": "task"} if is_metaworld(task) else {}
    env = make_control_env(task, horizon=HORIZON, action_repeat=ACTION_REPEAT, image_size=size, **view)
    expert = controller_of(task) or (lambda _: env.action_space.sample())
    state, _ = env.reset(seed=seed)
    moments: list[tuple[Any, float, bool]] = [(env.render(), 0.0, False)]
    success = False
    for _ in range(horizon_of(env)):
        state, reward, _, _, info = env.step(expert(state))
        success = success or bool(info["success"])
        moments.append((env.render(), float(reward), success))
    env.close()
    return [moments[place] for place in np.linspace(0, len(moments) - 1, count).round().astype(int)]


def draw_task_sheet(tasks: Sequence[str], *, count: int = 6, size: int = 300, title: str = "") -> Figure:
    """A row of pictures for each task, with the true reward under each."""
    with quiet():
        figure = Figure(figsize=(1.35 * count, 1.75 * len(tasks) + 0.2), layout="constrained")
        rows = figure.subfigures(len(tasks), 1, squeeze=False).reshape(-1)
        for row, task in zip(rows, tasks):
            view = view_of(task)
            row.suptitle(f"{task}: the goal is {view.goal if view else goal_of(task)}.", fontsize=7.5)
            moments = expert_pictures(task, count=count, size=size)
            for axes, (picture, reward, success) in zip(row.subplots(1, count, squeeze=False)[0], moments):
                axes.imshow(picture)
                axes.set_xticks([])
                axes.set_yticks([])
                axes.set_xlabel(f"{reward:.1f}", fontsize=6.5, color=GOOD if success else INK, labelpad=2)
        figure.suptitle(title, fontsize=9)
    return figure
