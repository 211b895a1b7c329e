"""Episodes shown by an expert, with the expert's own reply as the label even where noise led it astray."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import gymnasium

from lookact.envs.experts.navigator import Navigator
from lookact.envs.experts.random_policy import random_move
from lookact.envs.navigation import Navigation, observe
from lookact.seeding import numpy_rng
from lookact.types import Observation


@dataclass(frozen=True)
class Demonstration:
    """One turn of a shown episode."""

    observation: Observation
    label: str
    """What the expert replied."""
    executed: str
    """What was carried out: the same, or the same sentence with a random move."""
    reward: float
    terminated: bool
    truncated: bool
    info: Mapping[str, Any]
    """Of the step that followed."""


def demonstrate(
    env: gymnasium.Env[Any, Any], seed: int, options: Mapping[str, Any] | None = None, *, noise: float = 0.0
) -> list[Demonstration]:
    """A navigator's episode; each turn's move is replaced by a random one with probability `noise`."""
    world = env.unwrapped
    assert isinstance(world, Navigation)
    shown, info = env.reset(seed=seed, options=dict(options or {}))
    expert = navigator(world)
    rng = numpy_rng(seed, "noise")
    turns: list[Demonstration] = []
    while not turns or not (turns[-1].terminated or turns[-1].truncated):
        observation = observe(shown, info)
        label = expert.act(world.walker.view, collided=info["collided"])
        executed = label
        if rng.random() < noise:
            executed = label[: label.index("{")] + random_move(rng, world.limits).json()
        shown, reward, terminated, truncated, info = env.step(executed)
        turns.append(Demonstration(observation, label, executed, float(reward), terminated, truncated, info))
    return turns


def navigator(world: Navigation) -> Navigator:
    """A navigator for the episode that an environment has just begun."""
    return Navigator(
        world.task.goal,
        world.task.label,
        camera=world.camera,
        limits=world.limits,
        success_distance=world.difficulty.success_distance,
    )
