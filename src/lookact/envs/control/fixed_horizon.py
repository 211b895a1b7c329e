"""Fixed-horizon control environments for learned rewards: a state vector, actions in [-1, 1], images, equal episodes.

A reward learned from preferences is known up to a constant only. Were an episode to end early, that constant would
reward or punish its end, unseen: so none may.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import gymnasium
import numpy as np
import PIL.Image
from gymnasium import spaces
from numpy.typing import NDArray

from lookact.envs.control.classic import TASKS, Classic
from lookact.envs.control.gym_control import control_shapes, make_gym_control
from lookact.envs.control.task_names import DEFORMABLE, is_metaworld, is_tabletop
from lookact.errors import ConfigError, EnvError
from lookact.types import Image

State = NDArray[np.float32]
ControlEnv = gymnasium.Env[State, State]
"""A state vector, actions in [-1, 1], a fixed `horizon` and images."""
TABLETOP = {"reach": "reach", "push": "push", "pick-and-place": "pick_place"}
HORIZON = 50
"""For environments without one."""


class FixedHorizon(gymnasium.Env[State, State]):
    """Another environment with episodes of `horizon` decisions; one that terminates before is refused as it does.

    `state_of` reads the state (s,) from its observation, `reward_of` the reward from its own and its info.
    """

    metadata = {"render_modes": ["rgb_array"], "render_fps": 20}  # noqa: RUF012

    def __init__(
        self,
        inner: gymnasium.Env[Any, Any],
        *,
        horizon: int,
        action_repeat: int = 1,
        image_size: int = 64,
        state_of: Callable[[Any], Any] = lambda shown: shown,
        reward_of: Callable[[float, Mapping[str, Any]], float] = lambda reward, _: reward,
    ) -> None:
        if not isinstance(inner.action_space, spaces.Box) or not np.isfinite(inner.action_space.low).all():
            raise ConfigError(
                f"{inner} has actions of {inner.action_space}: choose an environment with bounded continuous ones"
            )
        self.inner, self.horizon, self.action_repeat, self.image_size = inner, horizon, action_repeat, image_size
        self._state_of, self._reward_of = state_of, reward_of
        self.render_mode = "rgb_array"
        shown, _ = inner.reset(seed=0)
        size = np.asarray(state_of(shown)).shape
        if len(size) != 1:
            raise ConfigError(f"{inner} shows states of shape {size}: choose an environment with a vector of numbers")
        self.observation_space = spaces.Box(-np.inf, np.inf, size, np.float32)
        self.action_space = spaces.Box(-1.0, 1.0, inner.action_space.shape, np.float32)
        self.steps, self._over = 0, True

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[State, dict[str, Any]]:
        super().reset(seed=seed)
        shown, info = self.inner.reset(seed=int(self.np_random.integers(2**31)), options=options)
        self.steps, self._over = 0, False
        return self._state(shown), {"success": bool(info.get("success", False))}

    def step(self, action: State) -> tuple[State, float, bool, bool, dict[str, Any]]:
        if self._over:
            raise EnvError("the episode is over: call reset before the next step")
        rewards, success = [], False
        for _ in range(self.action_repeat):
            shown, reward, terminated, truncated, info = self.inner.step(self._scaled(action))
            rewards.append(self._reward_of(float(reward), info))
            success = success or bool(info.get("success", False))
            if terminated or (truncated and self.steps + 1 < self.horizon):
                raise EnvError(
                    f"{self.inner} ended itself after {self.steps + 1} of {self.horizon} decisions: a learned reward "
                    "needs a fixed horizon, since the end would be a reward of its own; choose one that goes on"
                )
        self.steps += 1
        self._over = self.steps >= self.horizon
        return self._state(shown), float(np.mean(rewards)), False, self._over, {"success": success}

    def render(self) -> Image:
        """(image_size, image_size, 3)"""
        image: Any = self.inner.render()
        if image is None or image.shape[:2] != (self.image_size, self.image_size):
            image = PIL.Image.fromarray(image).resize((self.image_size, self.image_size))
        return np.asarray(image, dtype=np.uint8)

    def close(self) -> None:
        self.inner.close()

    def _state(self, shown: Any) -> State:
        return np.asarray(self._state_of(shown), dtype=np.float32)

    def _scaled(self, action: State) -> State:
        low, high = self.inner.action_space.low, self.inner.action_space.high  # type: ignore[attr-defined]
        scaled: State = (low + 0.5 * (np.clip(action, -1.0, 1.0) + 1.0) * (high - low)).astype(np.float32)
        return scaled


class FixedStart(gymnasium.Env[State, State]):
    """A control environment whose episodes all begin where one seed puts them, whatever seed they are reset with."""

    def __init__(self, inner: ControlEnv, seed: int = 0) -> None:
        self.inner, self.seed, self.horizon = inner, seed, horizon_of(inner)
        self.observation_space, self.action_space = inner.observation_space, inner.action_space
        self.metadata, self.render_mode = inner.metadata, inner.render_mode

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[State, dict[str, Any]]:
        super().reset(seed=seed)
        return self.inner.reset(seed=self.seed, options=options)

    def step(self, action: State) -> tuple[State, float, bool, bool, dict[str, Any]]:
        state, reward, terminated, truncated, info = self.inner.step(action)
        return state, float(reward), terminated, truncated, info

    def render(self) -> Any:
        return self.inner.render()

    def close(self) -> None:
        self.inner.close()


def horizon_of(env: ControlEnv) -> int:
    """Decisions in each of its episodes."""
    return int(env.horizon)  # type: ignore[attr-defined]


def make_control_env(
    task: str, *, horizon: int = 0, action_repeat: int = 1, image_size: int = 64, **options: Any
) -> ControlEnv:
    """The environment of a task by name: Pendulum-v1, drawer-open-v3, tabletop/reach, deformable/rope, or any
    Gymnasium id that fits.

    Any other environment by MODULE:NAME, FILE.py:NAME or an entry point too. A horizon of 0 is its own. `options` are
    MetaWorld's `camera` and `crop`.
    """
    lengths: dict[str, Any] = {"action_repeat": action_repeat, "image_size": image_size}
    if task in TASKS:
        return Classic(task, horizon=horizon or None, **lengths)
    # simulators are extras: only the one that is asked for must be there
    if is_tabletop(task):
        return _tabletop(task, horizon or HORIZON, **lengths)
    if task.startswith(DEFORMABLE):
        from lookact.envs.control.deformables import Deformable

        soft = Deformable(task, image_size=image_size)
        return FixedHorizon(soft, horizon=horizon or HORIZON, **lengths)
    if is_metaworld(task):
        from lookact.envs.control.metaworld import MetaWorld

        return MetaWorld(task, horizon=horizon or 500 // action_repeat, **lengths, **options)
    # no picture is drawn unless asked for: a judge that needs none works where there is no OpenGL
    control_shapes(task, (), draw=False)
    inner = make_gym_control(task, image_size=image_size, camera=options.get("camera", ""))
    return FixedHorizon(inner, horizon=horizon or HORIZON, state_of=lambda shown: shown["state"], **lengths)


def _tabletop(task: str, horizon: int, *, action_repeat: int, image_size: int) -> FixedHorizon:
    """The arm at the table, rewarded by how far the task is done and not by the last step's part in it."""
    name = "pick-and-place" if task.startswith("lookact/") else task.partition("/")[2]
    if name not in TABLETOP:
        raise ConfigError(
            f"no task {task!r} at the table: choose of {', '.join(f'tabletop/{each}' for each in TABLETOP)}"
        )
    from lookact.envs.tabletop.env import Tabletop

    inner = Tabletop(
        task=TABLETOP[name],
        cameras=(),
        image_size=image_size,
        max_steps=horizon * action_repeat,
        terminate_on_success=False,
        render_mode="rgb_array",
    )
    return FixedHorizon(
        inner,
        horizon=horizon,
        action_repeat=action_repeat,
        image_size=image_size,
        state_of=lambda shown: shown["state"],
        reward_of=lambda _, info: float(info["progress"]),
    )
