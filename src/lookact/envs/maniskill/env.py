"""`lookact/ManiSkill-v0`: free exploration with the Panda at ManiSkill's table; observations and actions of the MuJoCo
table.

There is no task: rewards are 0, nothing terminates, `truncated` after `max_steps`. A step is a tenth of a second. A
scene is built when its seed is new, and kept while episodes ask for the same.
"""

from __future__ import annotations

from typing import Any

import gymnasium
import numpy as np
from gymnasium import spaces
from numpy.typing import NDArray

from lookact.envs.maniskill.device import prepare
from lookact.envs.rooms.interface import PRINTABLE, Shown, episode_seeds
from lookact.envs.tabletop.arm import FINGER_TRAVEL, HOME
from lookact.envs.tabletop.control import Controller
from lookact.envs.tabletop.env import CAMERAS, FAR
from lookact.envs.tabletop.language import LONGEST, phrase
from lookact.envs.tabletop.orientation import Vector
from lookact.envs.tabletop.randomise import TOOL_START, Randomisation, draw_look, draw_start
from lookact.envs.tabletop.scene import Layout, build_model
from lookact.envs.tabletop.sizes import ACTION_SIZES, STATE_SIZE
from lookact.errors import EnvError
from lookact.seeding import numpy_rng
from lookact.types import Image

GRIP_LOW, GRIP_HIGH = -0.01, 0.04
"""Gripper positions of ManiSkill's actions -1 and 1, in metres."""


class ManiSkillTable(gymnasium.Env[Shown, NDArray[np.float32]]):
    """Observations are `head` and `wrist` images, the robot `state` (joints, opening, tool) and an `instruction`."""

    metadata = {"render_modes": ["rgb_array"], "render_fps": 10}  # noqa: RUF012

    def __init__(
        self,
        *,
        control: str = "delta_qpos",
        image_size: int = 84,
        max_steps: int = 50,
        randomise: Randomisation | None = None,
        distractors: int = 0,
        render_mode: str | None = None,
    ) -> None:
        device = prepare()
        from lookact.envs.maniskill.simulation import Exploration

        self.image_size, self.max_steps, self.render_mode = image_size, max_steps, render_mode
        self.randomise, self.object_count = randomise or Randomisation(), 1 + distractors
        # forward and inverse kinematics are MuJoCo's, on the same arm
        self.controller = Controller(build_model(Layout("none", clutter=0)), control)
        self._ready = self.controller.kinematics.solve(HOME, TOOL_START, 50)
        self._draw_episode(0, 0)
        self.simulation = Exploration(self.look, self.start, self._targets(), image_size=image_size, device=device)
        image = spaces.Box(0, 255, (image_size, image_size, 3), np.uint8)
        self.observation_space = spaces.Dict(
            {
                **dict.fromkeys(CAMERAS, image),
                "state": spaces.Box(-FAR, FAR, (STATE_SIZE,), np.float32),
                "instruction": spaces.Text(LONGEST, charset=PRINTABLE),
            }
        )
        self.action_space = spaces.Box(-1.0, 1.0, (ACTION_SIZES[control],), np.float32)
        self.steps, self._over = 0, True

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[Shown, dict[str, Any]]:
        """Options `scene_seed` (appearance, wording) and `start_seed` (poses) override `seed`."""
        super().reset(seed=seed)
        built = self._scene
        self._draw_episode(*episode_seeds(self, seed, options))
        self.simulation.begin_episode(self.look, self.start, self._targets(), rebuild=self._scene != built)
        self.steps, self._over = 0, False
        return self._shown(), self._info()

    def step(self, action: NDArray[np.float32]) -> tuple[Shown, float, bool, bool, dict[str, Any]]:
        if self._over:
            raise EnvError("the episode is over: call reset before the next step")
        valid = bool(np.all(np.isfinite(action)))
        if valid:
            self.controller.command(action, self.simulation.arm()[0][:7])
        *joints, finger, _ = self._targets()
        grip = 2 * (finger - GRIP_LOW) / (GRIP_HIGH - GRIP_LOW) - 1
        self.simulation.step(np.array([*joints, grip], np.float32))
        self.steps += 1
        self._over = self.steps >= self.max_steps
        return self._shown(), 0.0, False, self._over, self._info() | {"valid_action": valid}

    def render(self) -> Image | None:
        """The head camera's image."""
        return self.simulation.image("head") if self.render_mode == "rgb_array" else None

    def close(self) -> None:
        self.simulation.close()

    def _draw_episode(self, scene_seed: int, start_seed: int) -> None:
        self._scene = scene_seed
        self.look = draw_look(scene_seed, self.randomise, "none", things=self.object_count, clutter=Layout.clutter)
        self.start = draw_start(start_seed, "reach", "none", things=self.object_count)
        self.instruction = phrase(
            "reach",
            object=" ".join(self.look.objects[0]),
            target=self.look.targets[0],
            held_out=False,
            rng=numpy_rng(scene_seed, "wording"),
        )
        self.controller.begin(self.controller.kinematics.solve(self._ready, self.start.tool, 6))

    def _targets(self) -> Vector:
        """(9,) target positions of the joints and the two fingers."""
        return np.append(self.controller.joints, [FINGER_TRAVEL * self.controller.opening] * 2)

    def _shown(self) -> Shown:
        joints, tool = self.simulation.arm()
        state = np.array([*joints[:7], (joints[7] + joints[8]) / (2 * FINGER_TRAVEL), *tool], np.float32)
        return {
            **{camera: self.simulation.image(camera) for camera in CAMERAS},
            "state": state,
            "instruction": self.instruction,
        }

    def _info(self) -> dict[str, Any]:
        return {"instruction": self.instruction, "task": "explore", "step": self.steps}
