"""Gymnasium's FrozenLake as a chat environment: cross the ice to the present, around the holes."""

from __future__ import annotations

import os
from collections.abc import Iterator
from typing import Any

import gymnasium
import numpy as np
from gymnasium.envs.toy_text.frozen_lake import FrozenLakeEnv, generate_random_map
from numpy.typing import NDArray

from lookact.envs.grid.planner import shortest_plan
from lookact.envs.wrappers.gym_chat import GymChat, GymEnv, blank
from lookact.errors import EnvError

ACTIONS = {"left": 0, "down": 1, "right": 2, "up": 3}
MOVES = {"left": (0, -1), "down": (1, 0), "right": (0, 1), "up": (-1, 0)}
INSTRUCTION = "Reach the gift. Avoid holes."
CLASSES = ("hole", "gift", "player")


def make_frozen_lake(
    *,
    size: int = 4,
    layout: str = "random",
    frozen: float = 0.8,
    slippery: bool = False,
    random_start: bool = False,
    max_turns: int | None = None,
    cell_pixels: int = 32,
    blind: bool = False,
) -> GymChat:
    """`layout` 4x4 or 8x8 is Gymnasium's own map, random one that can be crossed, drawn by the start's seed.

    With `random_start` the player begins on any ice from which the present can be reached. `cell_pixels` a side of a
    cell: 32 is one visual token of Qwen3-VL, 16 one of its patches. `blind` blanks the picture.
    """
    # Gymnasium draws with pygame, which needs no screen
    os.environ.setdefault("SDL_VIDEODRIVER", "dummy")
    if layout != "random":
        size = int(layout[0])

    def make(seed: int) -> GymEnv:
        chosen: dict[str, Any] = {"map_name": layout}
        if layout == "random":
            chosen = {"desc": random_map(seed, size=size, frozen=frozen)}
        env: GymEnv = gymnasium.make("FrozenLake-v1", is_slippery=slippery, render_mode="rgb_array", **chosen)
        if random_start:
            start_anywhere(env)
        return env

    return GymChat(
        make,
        instruction=INSTRUCTION,
        actions=ACTIONS,
        max_turns=max_turns or 4 * size,
        image_size=cell_pixels * size,
        picture=blank if blind else None,
    )


def random_map(seed: int, *, size: int, frozen: float) -> list[str]:
    """Gymnasium's random map that can be crossed, drawn by a seed."""
    return generate_random_map(size=size, p=frozen, seed=seed)


def map_bytes(seed: int, *, size: int, frozen: float) -> bytes:
    """What the seed's random map looks like."""
    return "".join(random_map(seed, size=size, frozen=frozen)).encode()


def start_anywhere(env: GymEnv) -> None:
    """Episodes begin on a cell drawn by the seed of `reset`, among those the present can be reached from."""
    lake: Any = env.unwrapped
    cells = np.asarray(lake.desc)
    solvable = [
        letter in b"SF" and plan_from(cells, divmod(place, lake.ncol)) is not None
        for place, letter in enumerate(cells.ravel())
    ]
    lake.initial_state_distrib = np.array(solvable) / sum(solvable)


def expert_actions(env: GymEnv) -> list[str] | None:
    """A shortest way to the present from where the player stands, holes avoided; None where there is none."""
    return plan_from(*layout_of(env))


def plan_from(cells: NDArray[np.bytes_], player: tuple[int, int]) -> list[str] | None:
    """Fewest moves from the player's row and column to the present."""

    def follow(state: tuple[int, int]) -> Iterator[tuple[str, tuple[int, int]]]:
        for word, (down, right) in MOVES.items():
            after = state[0] + down, state[1] + right
            if 0 <= after[0] < len(cells) and 0 <= after[1] < len(cells[0]) and cells[after] != b"H":
                yield word, after

    return shortest_plan(player, follow, lambda state: cells[state] == b"G")


def cell_classes(env: GymEnv) -> NDArray[np.float32]:
    """(rows, columns, classes) what stands in each cell: labels for vision pretraining."""
    cells, player = layout_of(env)
    labels = np.stack([cells == b"H", cells == b"G", np.zeros_like(cells, dtype=bool)], axis=-1).astype(np.float32)
    labels[(*player, 2)] = 1.0
    return labels


def layout_of(env: GymEnv) -> tuple[NDArray[np.bytes_], tuple[int, int]]:
    """The map (rows, columns) of letters, and the player's row and column."""
    lake = env.unwrapped
    if not isinstance(lake, FrozenLakeEnv):
        raise EnvError(f"{type(lake).__name__} is no FrozenLake")
    row, column = divmod(int(lake.s), lake.ncol)
    return np.asarray(lake.desc), (row, column)
