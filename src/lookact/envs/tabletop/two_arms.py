"""`lookact/TwoArms-v0`: the tabletop with a second arm at its side.

An action is the first arm's, then the second's, each in its own arm's frame; a state is the first arm's eleven numbers,
then the second's, whose tool is told in the table's frame. The task is the tabletop's, and the first arm's to do.
"""

from __future__ import annotations

from typing import Any

import gymnasium
import mujoco
import numpy as np
from gymnasium import spaces
from numpy.typing import NDArray

from lookact.envs.rooms.interface import Shown
from lookact.envs.tabletop import experts
from lookact.envs.tabletop.arm import FINGER_TRAVEL, HOME, SECOND, add_arm
from lookact.envs.tabletop.control import Controller
from lookact.envs.tabletop.env import FAR, Tabletop
from lookact.types import Image

SECOND_START = np.array([0.46, 0.0, 0.22])
"""Where the second tool begins, in its arm's frame: at the edge of what the head camera shows, above the objects."""


class TwoArms(gymnasium.Env[Shown, NDArray[np.float32]]):
    """A `Tabletop` of these settings, in which the second arm begins above the table with an open gripper."""

    metadata = Tabletop.metadata

    def __init__(self, **settings: Any) -> None:
        self.table = Tabletop(second_arm=True, **settings)
        self.task, self.max_steps, self.render_mode = self.table.task, self.table.max_steps, self.table.render_mode
        # kinematics of an arm alone: what it is commanded is told in its own frame
        alone = mujoco.MjSpec()
        alone.compiler.degree = False
        add_arm(alone)
        self.second = Controller(alone.compile(), self.table.controller.mode)
        self._ready = self.second.kinematics.solve(HOME, SECOND_START, 50)
        model = self.table.model
        self._joints = [int(model.joint(f"{SECOND}joint{index}").qposadr[0]) for index in range(1, 8)]
        self._fingers = [int(model.joint(f"{SECOND}{side}").qposadr[0]) for side in ("left", "right")]
        names = [*(f"joint{index}" for index in range(1, 8)), "left", "right"]
        self._servos = [model.actuator(f"{SECOND}{name}").id for name in names]
        self._tool = model.site(f"{SECOND}tool").id
        parts = dict(self.table.observation_space.spaces)  # type: ignore[attr-defined]
        size = parts["state"].shape[0] + self._state().size
        self.observation_space = spaces.Dict(parts | {"state": spaces.Box(-FAR, FAR, (size,), np.float32)})
        self.size = (self.table.action_space.shape or (0,))[0]
        self.action_space = spaces.Box(-1.0, 1.0, (2 * self.size,), np.float32)

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[Shown, dict[str, Any]]:
        super().reset(seed=seed)
        data = self.table.data
        _, info = self.table.reset(seed=seed, options=options)
        self.second.begin(self._ready)
        data.qpos[self._joints] = self._ready
        data.qpos[self._fingers] = FINGER_TRAVEL
        data.ctrl[self._servos] = [*self._ready, FINGER_TRAVEL, FINGER_TRAVEL]
        mujoco.mj_forward(self.table.model, data)
        return self._with_second(self.table.shown()), info

    def step(self, action: NDArray[np.float32]) -> tuple[Shown, float, bool, bool, dict[str, Any]]:
        data = self.table.data
        if np.all(np.isfinite(action)):
            data.ctrl[self._servos] = self.second.command(action[self.size :], data.qpos[self._joints])
        shown, reward, terminated, truncated, info = self.table.step(action[: self.size])
        return self._with_second(shown), reward, terminated, truncated, info

    def render(self) -> Image | None:
        """The head camera's picture."""
        return self.table.render()

    def close(self) -> None:
        self.table.close()

    def expert_action(self) -> NDArray[np.float32]:
        """The tabletop's expert by the first arm; the second stays where it is, its gripper open."""
        rest = np.zeros(self.size, np.float32)
        rest[-1] = 1.0
        return np.concatenate([experts.expert_action(self.table), rest])

    def _with_second(self, shown: Shown) -> Shown:
        return shown | {"state": np.concatenate([shown["state"], self._state()])}

    def _state(self) -> NDArray[np.float32]:
        """(11,) joints, opening and tool of the second arm."""
        data = self.table.data
        opening = data.qpos[self._fingers].mean() / FINGER_TRAVEL
        return np.array([*data.qpos[self._joints], opening, *data.site_xpos[self._tool]], np.float32)
