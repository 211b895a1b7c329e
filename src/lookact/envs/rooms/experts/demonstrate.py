"""Episodes shown by an expert, with the expert's own reply as the label even where noise led it astray."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Protocol

import gymnasium

from lookact.envs.rooms import navigation, spatial_vqa
from lookact.envs.rooms.experts.looker import Looker
from lookact.envs.rooms.experts.navigator import Navigator
from lookact.envs.rooms.experts.random_policy import random_move
from lookact.envs.rooms.navigation import Navigation
from lookact.envs.rooms.places import View
from lookact.envs.rooms.spatial_vqa import SpatialVQA
from lookact.errors import EnvError
from lookact.seeding import numpy_rng
from lookact.text.actions import MOVE_KEYS
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


class Expert(Protocol):
    """Replies to one view after another of one episode."""

    def act(self, view: View, info: Mapping[str, Any]) -> str: ...


def demonstrate(
    env: gymnasium.Env[Any, Any], seed: int, options: Mapping[str, Any] | None = None, *, noise: float = 0.0
) -> list[Demonstration]:
    """An expert's episode in either walking environment.

    With probability `noise` a turn's move is replaced by a random one; answers stay as they are.
    """
    world = env.unwrapped
    if not isinstance(world, Navigation | SpatialVQA):
        raise EnvError(f"no expert for {type(world).__name__}: give a Navigation or SpatialVQA environment")
    observe = navigation.observe if isinstance(world, Navigation) else spatial_vqa.observe
    shown, info = env.reset(seed=seed, options=dict(options or {}))
    expert = expert_for(world)
    rng = numpy_rng(seed, "noise")
    turns: list[Demonstration] = []
    while not turns or not (turns[-1].terminated or turns[-1].truncated):
        observation = observe(shown, info)
        label = executed = expert.act(world.walker.view, info)
        if rng.random() < noise and MOVE_KEYS[0] in label:
            executed = label[: label.index("{")] + random_move(rng, world.limits).json()
        shown, reward, terminated, truncated, info = env.step(executed)
        turns.append(Demonstration(observation, label, executed, float(reward), terminated, truncated, info))
    return turns


def expert_for(world: Navigation | SpatialVQA) -> Expert:
    """An expert for the episode that an environment has just begun."""
    if isinstance(world, SpatialVQA):
        labels = tuple(box.label for box in world.inquiry.place.scene.boxes)
        return Looker(world.inquiry.question, labels, camera=world.camera, limits=world.limits)
    return Navigator(
        world.task.goal,
        camera=world.camera,
        limits=world.limits,
        success_distance=world.difficulty.success_distance,
    )
