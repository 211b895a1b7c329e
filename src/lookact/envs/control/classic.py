"""Classic control with continuous actions at a fixed horizon, drawn by a few lines of numpy instead of a game library.

Pendulum's physics are Gymnasium's. The cart's pole may fall and swing around, and the car that has reached the flag
stays there: no episode terminates, `truncated` comes after `horizon` decisions.
"""

from __future__ import annotations

import functools
import itertools
import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import gymnasium
import numpy as np
from gymnasium import spaces
from numpy.typing import NDArray

from lookact.errors import ConfigError, EnvError
from lookact.types import Image

State = NDArray[np.float32]
Physics = NDArray[np.float64]


@dataclass(frozen=True)
class Dynamics:
    """A task: dynamics, reward and rendering of a few state variables."""

    horizon: int
    start: Callable[[np.random.Generator], Physics]
    move: Callable[[Physics, float], Physics]
    """The next physics, by an action in [-1, 1]."""
    reward: Callable[[Physics, float], float]
    """Of the physics before a move, and the action."""
    success: Callable[[Physics], bool]
    state: Callable[[Physics], list[float]]
    """What the agent is told."""
    draw: Callable[[Physics, LineDrawing], None]


class Classic(gymnasium.Env[State, State]):
    """One of `TASKS`; a decision is `action_repeat` steps of its physics, and gets their mean reward."""

    metadata = {"render_modes": ["rgb_array"], "render_fps": 20}  # noqa: RUF012

    def __init__(self, task: str, *, horizon: int | None = None, action_repeat: int = 1, image_size: int = 64) -> None:
        if task not in TASKS:
            raise ConfigError(f"classic control has no task {task!r}: choose one of {', '.join(TASKS)}")
        self.task, self.dynamics = task, TASKS[task]
        self.horizon = horizon or self.dynamics.horizon // action_repeat
        self.action_repeat, self.image_size, self.render_mode = action_repeat, image_size, "rgb_array"
        self.physics = self.dynamics.start(np.random.default_rng(0))
        self.observation_space = spaces.Box(-np.inf, np.inf, (len(self.dynamics.state(self.physics)),), np.float32)
        self.action_space = spaces.Box(-1.0, 1.0, (1,), np.float32)
        self.steps, self._over = 0, True

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[State, dict[str, Any]]:
        super().reset(seed=seed)
        self.physics, self.steps, self._over = self.dynamics.start(self.np_random), 0, False
        return self._state(), {"success": self.dynamics.success(self.physics)}

    def step(self, action: State) -> tuple[State, float, bool, bool, dict[str, Any]]:
        if self._over:
            raise EnvError("the episode is over: call reset before the next step")
        force, total = float(np.clip(action[0], -1.0, 1.0)), 0.0
        for _ in range(self.action_repeat):
            total += self.dynamics.reward(self.physics, force)
            self.physics = self.dynamics.move(self.physics, force)
        self.steps += 1
        self._over = self.steps >= self.horizon
        info = {"success": self.dynamics.success(self.physics)}
        return self._state(), total / self.action_repeat, False, self._over, info

    def render(self) -> Image:
        """(image_size, image_size, 3)"""
        drawing = LineDrawing(self.image_size)
        self.dynamics.draw(self.physics, drawing)
        return drawing.pixels

    def _state(self) -> State:
        return np.array(self.dynamics.state(self.physics), np.float32)


def wrap_angle(angle: float) -> float:
    """The same angle between -pi and pi."""
    return (angle + math.pi) % (2 * math.pi) - math.pi


def swing(physics: Physics, force: float) -> Physics:
    """Gymnasium's pendulum: angle from upright and speed, torque up to 2."""
    angle, speed = physics
    speed = float(np.clip(speed + (15.0 * math.sin(angle) + 6.0 * force) * 0.05, -8.0, 8.0))
    return np.array([angle + speed * 0.05, speed])


def balance(physics: Physics, force: float) -> Physics:
    """Gymnasium's cart and pole with a force up to 10 either way; the track's ends stop the cart."""
    place, speed, angle, turning = physics
    sine, cosine = math.sin(angle), math.cos(angle)
    push = (10.0 * force + 0.05 * turning**2 * sine) / 1.1
    turn = (9.8 * sine - cosine * push) / (0.5 * (4.0 / 3.0 - 0.1 * cosine**2 / 1.1))
    drive = push - 0.05 * turn * cosine / 1.1
    place, speed, angle, turning = (
        place + 0.02 * speed,
        speed + 0.02 * drive,
        angle + 0.02 * turning,
        turning + 0.02 * turn,
    )
    if abs(place) > 2.4:
        place, speed = math.copysign(2.4, place), 0.0
    return np.array([place, speed, wrap_angle(angle), turning])


def climb(physics: Physics, force: float) -> Physics:
    """Gymnasium's car in the valley; at the flag it stays."""
    place, speed = physics
    if place >= 0.45:
        return np.array([0.45, 0.0])
    speed = float(np.clip(speed + 0.0015 * force - 0.0025 * math.cos(3 * place), -0.07, 0.07))
    place = float(np.clip(place + speed, -1.2, 0.6))
    return np.array([place, max(speed, 0.0) if place == -1.2 else speed])


def draw_pendulum(physics: Physics, drawing: LineDrawing) -> None:
    tip = 0.85 * math.sin(physics[0]), 0.85 * math.cos(physics[0])
    drawing.line((0.0, 0.0), tip, width=0.09, colour=(204, 77, 77))
    drawing.line((0.0, 0.0), (0.0, 0.0), width=0.05, colour=(0, 0, 0))


def draw_cart(physics: Physics, drawing: LineDrawing) -> None:
    place, angle = physics[0] / 2.8, physics[2]
    drawing.line((-1.0, -0.3), (1.0, -0.3), width=0.015, colour=(0, 0, 0))
    drawing.line((place - 0.12, -0.3), (place + 0.12, -0.3), width=0.08, colour=(40, 40, 40))
    tip = place + 0.7 * math.sin(angle), -0.25 + 0.7 * math.cos(angle)
    drawing.line((place, -0.25), tip, width=0.05, colour=(202, 152, 101))


def draw_car(physics: Physics, drawing: LineDrawing) -> None:
    def spot(place: float) -> tuple[float, float]:
        return (place + 0.3) / 0.95, 0.6 * math.sin(3 * place) - 0.2

    hill = [spot(place) for place in np.linspace(-1.2, 0.6, 15)]
    for one, two in itertools.pairwise(hill):
        drawing.line(one, two, width=0.015, colour=(0, 0, 0))
    flag = spot(0.45)
    drawing.line(flag, (flag[0], flag[1] + 0.3), width=0.02, colour=(0, 0, 0))
    drawing.line((flag[0], flag[1] + 0.3), (flag[0] + 0.1, flag[1] + 0.25), width=0.05, colour=(204, 204, 0))
    car = spot(physics[0])
    drawing.line((car[0], car[1] + 0.08), (car[0], car[1] + 0.08), width=0.11, colour=(60, 90, 200))


TASKS = {
    "Pendulum-v1": Dynamics(
        horizon=200,
        start=lambda rng: rng.uniform([-math.pi, -1.0], [math.pi, 1.0]),
        move=swing,
        reward=lambda p, force: -(wrap_angle(p[0]) ** 2 + 0.1 * p[1] ** 2 + 0.004 * force**2),
        success=lambda p: abs(wrap_angle(p[0])) < 0.25,
        state=lambda p: [math.cos(p[0]), math.sin(p[0]), p[1]],
        draw=draw_pendulum,
    ),
    "CartPole-v1": Dynamics(
        horizon=200,
        start=lambda rng: rng.uniform(-0.05, 0.05, 4),
        move=balance,
        reward=lambda p, _: math.cos(p[2]) - 0.1 * abs(p[0]),
        success=lambda p: abs(p[2]) < 0.2,
        state=lambda p: [p[0], p[1], math.cos(p[2]), math.sin(p[2]), p[3]],
        draw=draw_cart,
    ),
    "MountainCarContinuous-v0": Dynamics(
        horizon=200,
        start=lambda rng: np.array([rng.uniform(-0.6, -0.4), 0.0]),
        move=climb,
        reward=lambda p, _: 1.0 if p[0] >= 0.45 else 0.5 * (math.sin(3 * p[0]) - 1.0),
        success=lambda p: bool(p[0] >= 0.45),
        state=lambda p: [p[0], 20.0 * p[1]],
        draw=draw_car,
    ),
}


Point = tuple[float, float]


@functools.cache
def grid(size: int) -> tuple[NDArray[np.float32], NDArray[np.float32]]:
    """x and y (size, size) of every pixel's centre, from -1 to 1, y upwards."""
    centres = ((np.arange(size) + 0.5) * 2.0 / size - 1.0).astype(np.float32)
    across, down = np.meshgrid(centres, centres)
    return across, -down


class LineDrawing:
    """Anti-aliased lines on a white square of `size` pixels; coordinates run from -1 to 1, y upwards."""

    def __init__(self, size: int) -> None:
        self.pixels: Image = np.full((size, size, 3), 255, np.uint8)

    def line(self, start: Point, end: Point, *, width: float, colour: tuple[int, int, int]) -> None:
        """A line with round ends, `width` to each side; a point is a disc."""
        x, y = grid(len(self.pixels))
        along = end[0] - start[0], end[1] - start[1]
        length = max(along[0] ** 2 + along[1] ** 2, 1e-12)
        share = (((x - start[0]) * along[0] + (y - start[1]) * along[1]) / length).clip(0.0, 1.0)
        distance = np.hypot(x - start[0] - share * along[0], y - start[1] - share * along[1])
        pixel = 2.0 / len(self.pixels)
        covered = ((width - distance) / pixel + 0.5).clip(0.0, 1.0)[..., None]
        mixed = self.pixels * (1.0 - covered) + np.array(colour, np.float32) * covered
        self.pixels = np.rint(mixed).astype(np.uint8)
