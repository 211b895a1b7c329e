"""The world of pref-sac: a task with pictures, and a gallery of it for whoever must learn to judge it."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import gymnasium
import numpy as np
from numpy.typing import NDArray

from lookact.envs.control.fixed_horizon import make_control_env
from lookact.envs.control.scripted_experts import NoisyExpert, controller_of
from lookact.envs.control.task_names import is_metaworld
from lookact.errors import ConfigError
from lookact.judges.goals import goal_of
from lookact.recipes.pref_sac.config import World
from lookact.recipes.pref_sac.judge_data import LabelledImages
from lookact.seeding import derive, numpy_rng
from lookact.training.progress import progress

Env = gymnasium.Env[NDArray[np.float32], NDArray[np.float32]]
RANDOM_PROBS = (0.0, 0.3, 0.6, 1.0)
"""How often pupils stumble, in turn: pictures of every quality."""


def make_env(world: World) -> Env:
    """The task's environment: a state, actions in [-1, 1], a fixed horizon and pictures."""
    lengths = {"horizon": world.horizon, "action_repeat": world.action_repeat, "image_size": world.image_size}
    seen: dict[str, Any] = {"camera": world.camera, "crop": world.crop} if is_metaworld(world.task) else {}
    return make_control_env(world.task, **lengths, **seen)


def horizon_of(env: Env) -> int:
    """Decisions in each of its episodes."""
    return int(env.horizon)  # type: ignore[attr-defined]


def goal_in_words(world: World) -> str:
    """What the judge is told."""
    return world.goal or goal_of(world.task)


def goal_or_task(world: World) -> str:
    """The same for whoever looks at episodes: a task without words is called by its name."""
    try:
        return goal_in_words(world)
    except ConfigError:
        return world.task


def progress_of(world: World, state: NDArray[np.float32], reward: float) -> float:
    """How far a picture is on the way to the goal: its reward, or as much of that as can be seen."""
    if world.task.startswith("Pendulum-"):
        # its reward counts speed too, which no picture shows
        return -float(np.arctan2(state[1], state[0]) ** 2)
    if is_metaworld(world.task):
        # nearly all of MetaWorld's reward comes at the end: its root, in the same order, tells the way there apart
        return float(np.sqrt(max(reward, 0.0)))
    return reward


def make_gallery(world: World, count: int, *, seed: int) -> LabelledImages:
    """`count` pictures from episodes of every quality, in the order of their episodes."""
    images, scores, states = [], [], []
    for image, score, state in progress(_first(_pictures(world, seed), count), "taking pictures"):
        images.append(image)
        scores.append(score)
        states.append(state)
    return LabelledImages(np.stack(images), np.array(scores), np.stack(states))


def _pictures(world: World, seed: int) -> Iterator[tuple[NDArray[np.uint8], float, NDArray[np.float32]]]:
    """Pictures without end, each with its progress and its state."""
    env = make_env(world)
    size = int(np.prod(env.action_space.shape or ()))
    controller = controller_of(metaworld_name(world.task) if is_metaworld(world.task) else world.task)
    episode = 0
    while True:
        random_prob = RANDOM_PROBS[episode % len(RANDOM_PROBS)]
        pupil = NoisyExpert(
            controller, random_prob=random_prob, action_size=size, rng=numpy_rng(seed, "gallery", "pupil", episode)
        )
        state, _ = env.reset(seed=derive(seed, "gallery", episode) % 2**31)
        for _ in range(horizon_of(env)):
            state, reward, *_ = env.step(pupil.act(state))
            yield env.render(), progress_of(world, state, float(reward)), state  # type: ignore[misc]
        episode += 1


def _first(items: Iterator[Any], count: int) -> Iterator[Any]:
    for _, item in zip(range(count), items):
        yield item


def metaworld_name(task: str) -> str:
    """MetaWorld's own name of one of its tasks."""
    from lookact.envs.control.metaworld import task_name

    return task_name(task)
