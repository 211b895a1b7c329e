"""Any Gymnasium environment with bounded Box actions as a control environment: pictures, a state, an instruction.

TASK = ControlTask(make_env, instruction="Push the block to the wall.", success=lambda reward, terminated, info: …)
"""

from __future__ import annotations

import functools
import inspect
import os
import re
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import gymnasium
import numpy as np
from gymnasium import spaces
from numpy.typing import NDArray

from lookact.config.objects import TASK_GROUP, load_object, offered
from lookact.config.values import unknown
from lookact.envs.control.control_task import ControlTask
from lookact.envs.control.suites import suite_task
from lookact.envs.control.task_names import is_outside
from lookact.envs.rooms.interface import PRINTABLE, Shown
from lookact.envs.wrappers.gym_chat import CAMERA, rendered, scaled
from lookact.envs.wrappers.gym_rules import GymEnv, checked_array, checked_reset, checked_step, name_of
from lookact.errors import ConfigError, EnvError, LookActError
from lookact.types import Image

GYM_ID = re.compile(r".+-v\d+")
GUIDE = "see docs/tutorials/own-control-task.md"
PROBED = 3
"""Random steps that an environment must get through before a run begins."""
LONGEST = 400
"""Characters of an instruction."""
RATE = 20
"""Decisions a second, for want of an environment's own word."""


@dataclass(frozen=True)
class ControlShapes:
    """What a policy for a task must fit."""

    cameras: tuple[str, ...]
    """The names of its pictures."""
    state_size: int
    action_size: int
    instructions: tuple[str, ...]
    """Of a few starts."""
    rate: int = RATE
    """Decisions a second."""


class GymControl(gymnasium.Env[Shown, NDArray[np.float32]]):
    """Observations are a dict of pictures (size, size, 3), `state` (s,) and `instruction`; actions (a,) lie in -1 to 1.

    The state is all of the environment's numbers, flat and in the order of its space. A camera that it has no picture
    for shows its only one, or its first.
    """

    metadata = {"render_modes": ["rgb_array"], "render_fps": RATE}  # noqa: RUF012

    def __init__(
        self,
        task: ControlTask,
        *,
        cameras: Sequence[str] | Mapping[str, str] = (),
        camera: str = CAMERA,
        image_size: int = 64,
        max_steps: int = 0,
    ) -> None:
        """`cameras` are in the observation, by name or by name and picture; `camera` is what `render` draws.

        With `max_steps` of 0 an episode is as long as the environment goes on.
        """
        self.inner, self.task, self.camera = task.make_env(), task, camera
        self.image_size, self.max_steps = image_size, max_steps
        if "gymnasium.envs.mujoco.mujoco_rendering" in sys.modules and not os.environ.get("DISPLAY"):
            # without a screen Gymnasium tries GLFW first, and its failure can take the process with it
            os.environ.setdefault("MUJOCO_GL", "egl")
        if not isinstance(self.inner, gymnasium.Env):
            raise ConfigError(f"what makes the environment gave a {type(self.inner).__name__}: return a gymnasium.Env")
        self.name = name_of(self.inner)
        boxes, self.text = _parts(self.inner, self.name)
        self.pictures = {part: box for part, box in boxes.items() if _is_picture(box)}
        self.numbers = {part: box for part, box in boxes.items() if not _is_picture(box)}
        self.actions = _bounded(self.inner.action_space, self.name)
        pictures = cameras if isinstance(cameras, Mapping) else dict(zip(cameras, cameras))
        self.sources = {name: self._source(picture) for name, picture in pictures.items()}
        self.render_mode = "rgb_array"
        self.metadata = {**self.metadata, "render_fps": _rate(self.inner)}
        image = spaces.Box(0, 255, (image_size, image_size, 3), np.uint8)
        # a policy reads a state: where there are no numbers it is one zero
        self.state_size = max(1, sum(int(np.prod(box.shape)) for box in self.numbers.values()))
        self.observation_space = spaces.Dict(
            {
                **dict.fromkeys(cameras, image),
                "state": spaces.Box(-np.inf, np.inf, (self.state_size,), np.float32),
                "instruction": spaces.Text(LONGEST, min_length=0, charset=PRINTABLE),
            }
        )
        self.action_space = spaces.Box(-1.0, 1.0, (int(np.prod(self.actions.shape)),), np.float32)
        self.strict = False
        """Whether numbers are held to the bounds of their space too."""
        self.steps, self._over = 0, True

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[Shown, dict[str, Any]]:
        """Where things stand is decided by the seed alone; options are LookAct's own and not passed on."""
        super().reset(seed=seed)
        self._shown, info = checked_reset(self.inner, seed=None if seed is None else seed % 2**31)
        self.steps, self._over = 0, False
        self.instruction = self._instruction(info)
        return self._observation(), {"success": False, "instruction": self.instruction}

    def step(self, action: NDArray[np.float32]) -> tuple[Shown, float, bool, bool, dict[str, Any]]:
        if self._over:
            raise EnvError("the episode is over: call reset before the next step")
        low, high = self.actions.low, self.actions.high
        share = 0.5 * (np.clip(action, -1.0, 1.0).reshape(self.actions.shape) + 1.0)
        taken = (low + share * (high - low)).astype(self.actions.dtype)
        self._shown, reward, terminated, truncated, info = checked_step(self.inner, taken)
        self.steps += 1
        truncated = not terminated and (truncated or self.steps == self.max_steps)
        self._over = terminated or truncated
        success = self.task.success or _told_success
        told = {"success": bool(success(reward, terminated, info)), "instruction": self.instruction}
        return self._observation(), reward, terminated, truncated, told

    def expert_action(self) -> NDArray[np.float32]:
        """What the task's expert would do now, (a,) in -1 to 1."""
        if self.task.expert is None:
            raise ConfigError(f"{self.name} has no expert: give its ControlTask one, or clone a LeRobot folder")
        low, high = self.actions.low, self.actions.high
        share = (np.asarray(self.task.expert(self.inner, self._shown), np.float64) - low) / (high - low)
        return np.clip(2.0 * share - 1.0, -1.0, 1.0).astype(np.float32).reshape(-1)

    def render(self) -> Image:
        """(image_size, image_size, 3)"""
        return self._picture(self._source(self.camera))

    def close(self) -> None:
        self.inner.close()

    def __str__(self) -> str:
        return self.name

    def _source(self, camera: str) -> str | None:
        """The part of the observation that a camera shows; None: the environment's render."""
        return camera if camera in self.pictures else next(iter(self.task.cameras or self.pictures), None)

    def _picture(self, source: str | None) -> Image:
        if source is None:
            return scaled(rendered(self.inner), self.image_size)
        if source not in self.pictures:
            there = ", ".join(self.pictures) or "none, only its render"
            raise ConfigError(f"{self.name} has no picture {source}: it has {there}")
        array = checked_array(self._part(source), self.pictures[source], f"{self.name}'s {source}")
        return scaled(array if array.shape[2] == 3 else np.moveaxis(array, 0, 2), self.image_size)

    def _part(self, name: str) -> Any:
        if not isinstance(self.inner.observation_space, spaces.Dict):
            return self._shown
        if not isinstance(self._shown, Mapping) or name not in self._shown:
            raise EnvError(f"{self.name}'s observation has no {name}, its space has: return what the space says")
        return self._shown[name]

    def _observation(self) -> Shown:
        state = [
            checked_array(self._part(name), box, f"{self.name}'s {name}", bounds=self.strict).ravel()
            for name, box in self.numbers.items()
        ]
        numbers = np.concatenate(state).astype(np.float32) if state else np.zeros(1, np.float32)
        pictures = {camera: self._picture(source) for camera, source in self.sources.items()}
        return {**pictures, "state": numbers, "instruction": self.instruction}

    def _instruction(self, info: Mapping[str, Any]) -> str:
        shown = str(self._part(self.text)) if self.text else ""
        text = self.task.instruction or shown or str(info.get("instruction") or self.name)
        return "".join(letter if letter in PRINTABLE else " " for letter in text)[:LONGEST]


def find_control(source: str, known: Sequence[str] = ()) -> ControlTask:
    """The task that MODULE:NAME, FILE.py:NAME, an entry point, a Gymnasium id or a suite names.

    `known` are a recipe's own, for the error.
    """
    path = offered(TASK_GROUP).get(source, source)
    if (task := suite_task(path)) is not None:
        return task
    module, colon, name = path.rpartition(":")
    if not colon or GYM_ID.fullmatch(name):
        try:
            spec = gymnasium.spec(path)
        except (gymnasium.error.Error, ImportError) as error:
            if colon:
                raise ConfigError(f"{path}: {' '.join(str(error).split())}") from error
            remedy = "give MODULE:NAME, FILE.py:NAME, a Gymnasium id, or one of"
            raise unknown("task", source, [*known, *offered(TASK_GROUP)], otherwise=remedy) from error
        return ControlTask(functools.partial(gymnasium.make, spec, render_mode="rgb_array"))
    found = load_object(path)
    if isinstance(found, ControlTask):
        return found
    if hasattr(found, "specs"):
        raise ConfigError(f"{path} is a chat task: recipes rloo and ppo take it")
    if isinstance(found, gymnasium.Env) or not callable(found):
        kind = type(found).__name__
        wanted = f"name a class of environments, a function that makes one, or a ControlTask; {GUIDE}"
        raise ConfigError(f"{path} is no control task but a {kind}: {wanted}")
    draws = "render_mode" in inspect.signature(found).parameters
    return ControlTask(functools.partial(found, render_mode="rgb_array") if draws else found)


def instruction_of(task: str) -> str:
    """What a `ControlTask` that is imported says of itself; "" for any other."""
    return find_control(task).instruction if is_outside(task) else ""


def make_gym_control(source: str, *, instruction: str = "", **how: Any) -> GymControl:
    """The environment that `source` names, for a worker process to call; an `instruction` takes the task's place."""
    task = find_control(source)
    return GymControl(replace(task, instruction=instruction) if instruction else task, **how)


@functools.cache
def control_shapes(
    source: str, cameras: tuple[str, ...], *, instruction: str = "", known: tuple[str, ...] = (), draw: bool = True
) -> ControlShapes:
    """A task's sizes, after it was made, started and stepped; whatever breaks a rule is one line.

    `cameras` must be pictures of its own; none: all that it has, or the one that it renders. Without `draw` none is
    tried out.
    """
    task = find_control(source, known)
    try:
        env = GymControl(replace(task, instruction=instruction) if instruction else task)
        missing = [camera for camera in cameras if camera not in env.pictures]
        wanted = cameras or task.cameras or tuple(env.pictures) or (CAMERA,)
        if missing:
            there = ", ".join(env.pictures) or f"{CAMERA}, its render: leave the cameras out"
            raise ConfigError(f"{env.name} has no picture {missing[0]}: it has {there}")
        env.sources, env.strict = {camera: env._source(camera) for camera in wanted if draw}, True
        instructions = _probe(env)
        env.close()
    except LookActError as error:
        raise ConfigError(f"{source}: {error}") from error
    except Exception as error:
        told = " ".join(str(error).split())
        raise ConfigError(f"{source} does not run: {type(error).__name__}: {told}") from error
    return ControlShapes(
        wanted, env.state_size, int(np.prod(env.actions.shape)), instructions, env.metadata["render_fps"]
    )


def _probe(env: GymControl) -> tuple[str, ...]:
    """Start a few episodes and step them; their instructions."""
    instructions = []
    for seed in range(PROBED):
        _, info = env.reset(seed=seed)
        instructions.append(info["instruction"])
        over, rng = False, np.random.default_rng(seed)
        for _ in range(PROBED):
            if not over:
                _, _, terminated, truncated, _ = env.step(rng.uniform(-1, 1, env.action_space.shape).astype(np.float32))
                over = terminated or truncated
    return tuple(dict.fromkeys(instructions))


def _rate(env: GymEnv) -> int:
    """Frames a second by the environment's own word, whole as datasets and videos want them."""
    return max(1, round(float(env.metadata.get("render_fps") or RATE)))


def _told_success(reward: float, terminated: bool, info: Mapping[str, Any]) -> bool:
    return bool(info.get("success", info.get("is_success", False)))


def _parts(env: GymEnv, name: str) -> tuple[dict[str, spaces.Box], str]:
    """The boxes of an observation, a plain one called `state`, and the name of its text, "" where it has none."""
    space = env.observation_space
    inside: dict[str, Any] = dict(space.spaces) if isinstance(space, spaces.Dict) else {"state": space}
    texts = [part for part, kind in inside.items() if isinstance(kind, spaces.Text)]
    boxes = {part: kind for part, kind in inside.items() if isinstance(kind, spaces.Box)}
    for part in inside.keys() - boxes.keys() - set(texts):
        remedy = "make it a Box, or a Dict of Boxes (gymnasium.wrappers.FlattenObservation)"
        raise ConfigError(f"{name}'s observation {part} is {inside[part]}: {remedy}")
    return boxes, next(iter(texts), "")


def _is_picture(box: spaces.Box) -> bool:
    return box.dtype == np.uint8 and len(box.shape) == 3 and 3 in (box.shape[0], box.shape[2])


def _bounded(space: Any, name: str) -> spaces.Box:
    if not isinstance(space, spaces.Box) or not (np.isfinite(space.low).all() and np.isfinite(space.high).all()):
        raise ConfigError(f"{name} has actions of {space}: a control task has a Box with finite bounds")
    return space
