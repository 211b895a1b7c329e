"""Expert demonstrations, labelled with the expert's own reply even in states that noise led to; random policies."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

import gymnasium
import numpy as np

from lookact.envs.rooms import navigation, spatial_vqa
from lookact.envs.rooms.experts.navigator import Navigator
from lookact.envs.rooms.experts.occupancy_map import FORWARD_STEP, TURN_STEP
from lookact.envs.rooms.experts.vqa_expert import VQAExpert
from lookact.envs.rooms.motion import Limits, Move
from lookact.envs.rooms.navigation import Navigation
from lookact.envs.rooms.simulator import View
from lookact.envs.rooms.spatial_vqa import SpatialVQA
from lookact.errors import EnvError
from lookact.seeding import numpy_rng
from lookact.text.actions import ANSWER_KEY, MOVE_KEYS
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
    """An expert's episode in either room environment.

    With probability `noise` a turn's move is replaced by a random one; answers stay as they are.
    """
    base = env.unwrapped
    if not isinstance(base, Navigation | SpatialVQA):
        raise EnvError(f"no expert for {type(base).__name__}: give a Navigation or SpatialVQA environment")
    observe = navigation.observe if isinstance(base, Navigation) else spatial_vqa.observe
    shown, info = env.reset(seed=seed, options=dict(options or {}))
    expert = expert_for(base)
    rng = numpy_rng(seed, "noise")
    turns: list[Demonstration] = []
    while not turns or not (turns[-1].terminated or turns[-1].truncated):
        observation = observe(shown, info)
        label = executed = expert.act(base.walker.view, info)
        if rng.random() < noise and MOVE_KEYS[0] in label:
            executed = label[: label.index("{")] + random_move(rng, base.limits).json()
        shown, reward, terminated, truncated, info = env.step(executed)
        turns.append(Demonstration(observation, label, executed, float(reward), terminated, truncated, info))
    return turns


def expert_for(env: Navigation | SpatialVQA) -> Expert:
    """An expert for the episode that an environment has just begun."""
    if isinstance(env, SpatialVQA):
        return VQAExpert(env.task.question, env.task.sim.scene.boxes, camera=env.camera, limits=env.limits)
    return Navigator(
        env.task.goal,
        camera=env.camera,
        limits=env.limits,
        success_distance=env.difficulty.success_distance,
    )


def random_move(rng: np.random.Generator, limits: Limits) -> Move:
    """Any rotation and any walk within `limits`, in an expert's steps, standing still included."""
    turns = math.floor(limits.rotation_degrees / TURN_STEP)
    walks = math.floor(limits.forward_meters / FORWARD_STEP)
    return Move(int(rng.integers(-turns, turns + 1)) * TURN_STEP, int(rng.integers(walks + 1)) * FORWARD_STEP)


def random_answer(rng: np.random.Generator, options: Sequence[str] | None) -> str:
    """Any of the options' letters, or a whole number from 1 to 30, as a reply."""
    answer = str(rng.integers(1, 31)) if options is None else options[int(rng.integers(len(options)))][0]
    return json.dumps({ANSWER_KEY: answer})


def random_reply(env: Navigation | SpatialVQA, rng: np.random.Generator) -> str:
    """Valid JSON and nothing else; questions are answered with probability 1/3, and always in the last turn."""
    if isinstance(env, SpatialVQA) and (env.turn + 1 >= env.max_turns or rng.random() < 1 / 3):
        return random_answer(rng, env.task.question.options)
    return random_move(rng, env.limits).json()
