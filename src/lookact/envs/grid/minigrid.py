"""MiniGrid levels as chat environments, seen whole from above."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from functools import cache, partial
from typing import Any, NamedTuple

import gymnasium
import numpy as np
from numpy.typing import NDArray

from lookact.envs.grid.planner import shortest_plan
from lookact.envs.wrappers.gym_chat import GymChat, GymEnv
from lookact.types import Image

ACTIONS = {"left": 0, "right": 1, "forward": 2, "pickup": 3, "toggle": 5}
AHEAD = ((1, 0), (0, 1), (-1, 0), (0, -1))
"""A direction's step in columns and rows."""
CLASSES = ("wall", "key", "closed door", "open door", "goal", "agent right", "agent down", "agent left", "agent up")


def make_minigrid(
    level: str = "MiniGrid-DoorKey-6x6-v0", *, max_turns: int = 30, cell_pixels: int = 32, blind: bool = False
) -> GymChat:
    """A level by its Gymnasium id; the mission is the instruction, the start's seed draws the layout.

    `cell_pixels` a side of a cell: 32 is one visual token of Qwen3-VL, 16 one of its patches; `blind` blanks pictures.
    """
    return GymChat(
        open_level(level),
        instruction=mission,
        actions=ACTIONS,
        max_turns=max_turns,
        picture=partial(from_above, cell_pixels=cell_pixels, blind=blind),
    )


def open_level(level: str) -> GymEnv:
    import minigrid  # noqa: F401  registers the levels

    env: GymEnv = gymnasium.make(level, render_mode="rgb_array")
    return env


def layout_bytes(seed: int, *, level: str) -> bytes:
    """What the seed draws: the grid, and where the agent stands and looks."""
    world: Any = _drawing_board(level).unwrapped
    world.reset(seed=seed)
    state: bytes = world.grid.encode().tobytes() + bytes([*map(int, world.agent_pos), int(world.agent_dir)])
    return state


_drawing_board = cache(open_level)


def mission(info: Mapping[str, Any]) -> str:
    return "Get to the green goal." if not info.get("mission") else str(info["mission"])


def from_above(env: GymEnv, *, cell_pixels: int = 32, blind: bool = False) -> Image:
    """The whole grid, without the mark of what the agent can see."""
    picture: Image = env.unwrapped.get_frame(highlight=False, tile_size=cell_pixels)  # type: ignore[attr-defined]
    return np.zeros_like(picture) if blind else picture


class State(NamedTuple):
    """Where the agent is, whether it holds the key, and whether the door is open."""

    column: int
    row: int
    direction: int
    has_key: bool
    open: bool


def expert_actions(env: GymEnv) -> list[str] | None:
    """Fewest actions from here to the goal, by way of key and door where the level has them; None if there is none."""
    world: Any = env.unwrapped
    things = {(c, r): world.grid.get(c, r) for c in range(world.width) for r in range(world.height)}
    kinds = {cell: thing.type for cell, thing in things.items() if thing is not None}
    locked = any(thing is not None and thing.type == "door" and thing.is_locked for thing in things.values())
    opened = any(thing is not None and thing.type == "door" and thing.is_open for thing in things.values())
    carried = world.carrying is not None
    column, row = map(int, world.agent_pos)

    def follow(state: State) -> Iterator[tuple[str, State]]:
        ahead = state.column + AHEAD[state.direction][0], state.row + AHEAD[state.direction][1]
        kind = kinds.get(ahead)
        free = kind in (None, "goal") or (kind == "door" and state.open) or (kind == "key" and state.has_key)
        if free and ahead in things:
            yield "forward", state._replace(column=ahead[0], row=ahead[1])
        yield "left", state._replace(direction=(state.direction - 1) % 4)
        yield "right", state._replace(direction=(state.direction + 1) % 4)
        if kind == "key" and not state.has_key:
            yield "pickup", state._replace(has_key=True)
        if kind == "door" and not state.open and (state.has_key or not locked):
            yield "toggle", state._replace(open=True)

    start = State(column, row, int(world.agent_dir), carried, opened)
    return shortest_plan(start, follow, lambda state: kinds.get((state.column, state.row)) == "goal")


def cell_classes(env: GymEnv) -> NDArray[np.float32]:
    """(rows, columns, classes) what stands in each cell: labels for vision pretraining."""
    world: Any = env.unwrapped
    labels = np.zeros((world.height, world.width, len(CLASSES)), dtype=np.float32)
    for column in range(world.width):
        for row in range(world.height):
            thing = world.grid.get(column, row)
            if thing is not None and (name := _class_of(thing)) in CLASSES:
                labels[row, column, CLASSES.index(name)] = 1.0
    column, row = map(int, world.agent_pos)
    labels[row, column, CLASSES.index("agent right") + int(world.agent_dir)] = 1.0
    return labels


def _class_of(thing: Any) -> str:
    if thing.type == "door":
        return "open door" if thing.is_open else "closed door"
    return str(thing.type)
