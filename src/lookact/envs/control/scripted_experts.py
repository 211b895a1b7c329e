"""Scripted experts that solve control tasks from the state, and noisy versions of them: images of every quality."""

from __future__ import annotations

import warnings
from collections.abc import Callable
from typing import Any

import numpy as np
from numpy.typing import NDArray

from lookact.envs.control.task_names import DEFORMABLE, is_metaworld

Controller = Callable[[NDArray[np.floating[Any]]], NDArray[np.float32]]
"""From a state (s,) to an action (a,) in [-1, 1]."""
GRAVITY, TORQUE = 15.0, 3.0
"""Of Gymnasium's pendulum: its angle accelerates by GRAVITY * sin(angle) + TORQUE * torque."""
MOST_TORQUE = 2.0
HIGH, NEAR = 0.08, 0.03
"""Metres above the table at which a corner of a cloth is carried, and from its place at which it is let down."""
STICKINESS = 0.8
"""Probability of keeping the current choice, expert or random, for another step: single random actions cancel out."""


def controller_of(task: str) -> Controller | None:
    """A controller for a pendulum, a rope, a cloth or a MetaWorld task such as drawer-close-v3, None for others."""
    if task.startswith(DEFORMABLE):
        return {"rope": pull_apart, "cloth": fold_over}.get(task.removeprefix(DEFORMABLE))
    if task.rpartition("/")[2].startswith("Pendulum-"):
        return swing_up
    return metaworld_policy(task)


def swing_up(state: NDArray[np.floating[Any]]) -> NDArray[np.float32]:
    """Pumps energy until the pendulum can reach the top, then holds it there; of cos, sin and speed of its angle."""
    cosine, sine, speed = (float(value) for value in state)
    if cosine > 0.9:
        torque = -(10.0 * np.arctan2(sine, cosine) + 2.0 * speed)
    else:
        missing = GRAVITY * (1.0 - cosine) - 0.5 * speed**2
        # torque along the motion adds energy; at rest any push begins it
        torque = missing * (speed if speed else 1.0)
    return np.array([np.clip(torque / MOST_TORQUE, -1.0, 1.0)], dtype=np.float32)


def pull_apart(state: NDArray[np.floating[Any]]) -> NDArray[np.float32]:
    """Moves the ends of a rope, the first and the last of its points (3n,), away from each other."""
    ends = state.reshape(-1, 3)[[0, -1], :2]
    way = (ends[1] - ends[0]) / max(float(np.linalg.norm(ends[1] - ends[0])), 1e-6)
    return np.concatenate([-way, way]).astype(np.float32)


def fold_over(state: NDArray[np.floating[Any]]) -> NDArray[np.float32]:
    """Carries the first corner of a cloth, points (3n,), over to its last: lifted on the way, let down at the end."""
    held, opposite = state.reshape(-1, 3)[[0, -1]]
    way = opposite[:2] - held[:2]
    height = HIGH if np.linalg.norm(way) > NEAR else 0.0
    return np.clip(np.array([*way, height - held[2]]) / NEAR, -1.0, 1.0).astype(np.float32)


def metaworld_policy(task: str) -> Controller | None:
    """MetaWorld's own scripted policy of a task."""
    try:
        from metaworld.policies import ENV_POLICY_MAP

        from lookact.envs.control.metaworld import task_name
    except ImportError:
        return None
    name = task_name(task) if is_metaworld(task) else task.rpartition("/")[2]
    if name not in ENV_POLICY_MAP:
        return None
    policy = ENV_POLICY_MAP[name]()

    def act(state: NDArray[np.floating[Any]]) -> NDArray[np.float32]:
        with warnings.catch_warnings():
            # it says each time that its actions will be clipped
            warnings.simplefilter("ignore")
            action = policy.get_action(np.asarray(state, dtype=np.float64))
        return np.asarray(np.clip(action, -1.0, 1.0), dtype=np.float32)

    return act


class NoisyExpert:
    """An expert with sticky random actions: now and then a random action is held for a while instead."""

    def __init__(
        self, controller: Controller | None, *, random_prob: float, action_size: int, rng: np.random.Generator
    ) -> None:
        self.controller, self.rng = controller, rng
        self.random_prob = 1.0 if controller is None else random_prob
        """Share of steps that are random."""
        self.action_size = action_size
        self._change()

    def act(self, state: NDArray[np.floating[Any]]) -> NDArray[np.float32]:
        """The next action (a,)."""
        if self.rng.random() > STICKINESS:
            self._change()
        return self.random if self._random or self.controller is None else self.controller(state)

    def _change(self) -> None:
        self._random = bool(self.rng.random() < self.random_prob)
        self.random = self.rng.uniform(-1.0, 1.0, self.action_size).astype(np.float32)
