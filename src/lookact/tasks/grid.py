"""Tasks "frozen-lake" and "minigrid": grid worlds that others wrote the rules of."""

from __future__ import annotations

from functools import partial

from lookact.envs.grid import frozen_lake, minigrid
from lookact.tasks.gym_task import GymTask
from lookact.tasks.settings import FrozenLakeConfig, MiniGridConfig


def frozen_lake_task(env: FrozenLakeConfig, seed: int = 0) -> GymTask:
    make = partial(
        frozen_lake.make_frozen_lake,
        size=env.size,
        layout=env.layout,
        frozen=env.frozen,
        slippery=env.slippery,
        random_start=env.random_start,
        max_turns=env.max_turns,
        cell_pixels=env.cell_pixels,
        blind=env.blind,
    )
    random_maps = partial(frozen_lake.map_bytes, size=env.size, frozen=env.frozen)
    return GymTask(
        make,
        env.image_size,
        actions=tuple(frozen_lake.ACTIONS),
        expert=frozen_lake.expert_actions,
        labels=frozen_lake.cell_classes if env.labels else None,
        layout=random_maps if env.layout == "random" else None,
    )


def minigrid_task(env: MiniGridConfig, seed: int = 0) -> GymTask:
    return GymTask(
        partial(
            minigrid.make_minigrid,
            env.level,
            max_turns=env.max_turns,
            cell_pixels=env.cell_pixels,
            blind=env.blind,
        ),
        env.image_size,
        actions=tuple(minigrid.ACTIONS),
        expert=minigrid.expert_actions,
        labels=minigrid.cell_classes if env.labels else None,
        layout=partial(minigrid.layout_bytes, level=env.level),
    )
