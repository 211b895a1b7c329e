"""`lookact/Tabletop-v0`: a robot arm at a table, with language instructions.

An episode ends with `terminated` where the task is done (unless `terminate_on_success` is off) and with `truncated`
after `max_steps`. The dense reward of a step is the progress it made (see `tasks`), the sparse one is 1 where the task
is done; `success_bonus` is added once. A step is a tenth of a second.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import gymnasium
import mujoco
import numpy as np
from gymnasium import spaces
from numpy.typing import NDArray

from lookact.envs.rooms.interface import PRINTABLE, Shown, episode_seeds
from lookact.envs.tabletop.arm import FINGER_TRAVEL, HOME, SECOND
from lookact.envs.tabletop.control import Controller, between
from lookact.envs.tabletop.drawers import HANDLE_PLACE
from lookact.envs.tabletop.language import LONGEST, phrase
from lookact.envs.tabletop.orientation import Vector, folded, heading
from lookact.envs.tabletop.randomise import (
    SHIFTS,
    TOOL_START,
    Randomisation,
    draw_dynamics,
    draw_look,
    draw_start,
    shifts,
)
from lookact.envs.tabletop.rendering import Renderer
from lookact.envs.tabletop.scene import BLOCK, HEIGHTS, KINDS, STAND_HEIGHT, Layout, build_model
from lookact.envs.tabletop.sizes import ACTION_SIZES, STATE_SIZE, true_state_size
from lookact.envs.tabletop.staging import dress, place
from lookact.envs.tabletop.tasks import ON_BLOCK, ON_STAND, TASKS, Situation, progress
from lookact.errors import ConfigError, EnvError
from lookact.seeding import numpy_rng
from lookact.types import Image, Observation

SUBSTEPS = 10
FACTS_SIZE = 21
TARGETS = {
    "reach": "none",
    "push": "mark",
    "pick_place": "stand",
    "stack": "block",
    "open_drawer": "drawer",
    "close_drawer": "drawer",
}
CAMERAS = ("head", "wrist")
FAR = 10.0
"""Beyond any number of a state."""
OBJECT, LEFT_PAD, RIGHT_PAD = 1, 2, 4
FULL_STATE = mujoco.mjtState.mjSTATE_INTEGRATION

OUT_OF_SIGHT = 1000.0
"""Metres that objects are moved by for a picture without them."""


class Tabletop(gymnasium.Env[Shown, NDArray[np.float32]]):
    """Observations are `head` and `wrist` pictures, the arm's `state` (joints, opening, tool) and the `instruction`.

    Without cameras nothing is drawn, and `state` alone also tells where the named object and target are. With
    `true_state` an observation also has what a critic in simulation may know and a policy must not.
    """

    metadata = {"render_modes": ["rgb_array"], "render_fps": 10}  # noqa: RUF012

    def __init__(
        self,
        *,
        task: str = "pick_place",
        control: str = "ee_delta",
        cameras: tuple[str, ...] = CAMERAS,
        image_size: int = 84,
        max_steps: int = 50,
        reward: str = "dense",
        success_bonus: float = 0.0,
        terminate_on_success: bool = True,
        randomise: Randomisation | None = None,
        shift: str = "none",
        distractors: int = 0,
        objects: str = "plain",
        action_noise: float = 0.0,
        latency: int = 0,
        true_state: bool = False,
        second_arm: bool = False,
        render_mode: str | None = None,
    ) -> None:
        for name, value, known in (
            ("task", task, TASKS),
            ("objects", objects, tuple(KINDS)),
            ("reward", reward, ("dense", "sparse")),
            ("shift", shift, SHIFTS),
        ):
            if value not in known:
                raise ConfigError(f"{name} is {value!r}: choose one of {', '.join(known)}")
        if unknown := set(cameras) - set(CAMERAS):
            raise ConfigError(f"cameras has {sorted(unknown)}: choose from {', '.join(CAMERAS)}")
        if objects == "long" and control == "ee_delta":
            raise ConfigError("long objects can't be held while the hand does not turn: set control to ee_delta_yaw")
        self.task, self.cameras, self.max_steps, self.reward = task, tuple(cameras), max_steps, reward
        self.terminate_on_success, self.shift, self.image_size = terminate_on_success, shift, image_size
        self.randomise, self.true_state, self.success_bonus = randomise or Randomisation(), true_state, success_bonus
        self.action_noise, self.latency, self.render_mode = action_noise, latency, render_mode
        self.layout = Layout(
            TARGETS[task], distractors, kind=objects, sizes=self.randomise.sizes, second_arm=second_arm
        )
        self.model = build_model(self.layout)
        self.data = mujoco.MjData(self.model)
        self._nominal = {
            name: getattr(self.model, name).copy() for name in ("geom_friction", "body_mass", "body_inertia")
        }
        self.controller = Controller(self.model, control)
        self._renderer: Renderer | None = None
        self._locate()
        self._ready = self.controller.kinematics.solve(HOME, TOOL_START, 50)
        self.observation_space = self._observation_space()
        self.action_space = spaces.Box(-1.0, 1.0, (ACTION_SIZES[control],), np.float32)
        self.steps, self.progress, self._over, self._succeeded = 0, 0.0, True, False

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[Shown, dict[str, Any]]:
        """Options `scene_seed` and `start_seed` fix the look and wording, and the places; else `seed` does.

        `target_place` (x, y) puts the mark that is asked for elsewhere.
        """
        super().reset(seed=seed)
        scene_seed, start_seed = episode_seeds(self, seed, options)
        self._begin(scene_seed, start_seed, (options or {}).get("target_place"))
        return self.shown(), self._info()

    def step(self, action: NDArray[np.float32]) -> tuple[Shown, float, bool, bool, dict[str, Any]]:
        if self._over:
            raise EnvError("the episode is over: call reset before the next step")
        valid = bool(np.all(np.isfinite(action)))
        if valid:
            self._delayed.append(np.array(action, np.float32))
            if len(self._delayed) > self.dynamics.latency:
                executed = self._disturbed(self._delayed.pop(0))
                self.data.ctrl[:9] = self.controller.command(executed, self.data.qpos[:7])
        mujoco.mj_step(self.model, self.data, SUBSTEPS)
        # a step leaves positions and contacts as they were before its last move
        mujoco.mj_forward(self.model, self.data)
        self.steps += 1
        self._now = self.situation()
        before, self.progress = self.progress, progress(self.task, self._now)
        success = self.progress == 1.0
        terminated = success and self.terminate_on_success
        truncated = not terminated and self.steps >= self.max_steps
        self._over = terminated or truncated
        reward = self.progress - before if self.reward == "dense" else float(success)
        if success and not self._succeeded:
            reward, self._succeeded = reward + self.success_bonus, True
        return self.shown(), reward, terminated, truncated, self._info() | {"valid_action": valid}

    def render(self) -> Image | None:
        """The head camera's picture."""
        return self._draw(("head",))["head"] if self.render_mode == "rgb_array" else None

    def object_mask(self, camera: str) -> NDArray[np.bool_]:
        """(h, w) where a camera shows an object: where its picture changes if all objects are out of sight."""
        shown, places = self._draw((camera,))[camera], self.data.geom_xpos[self._object_geoms].copy()
        self.data.geom_xpos[self._object_geoms] += OUT_OF_SIGHT
        without = self._draw((camera,))[camera]
        self.data.geom_xpos[self._object_geoms] = places
        changed: NDArray[np.bool_] = (shown != without).any(axis=2)
        return changed

    def close(self) -> None:
        if self._renderer is not None:
            self._renderer.close()
            self._renderer = None

    def situation(self) -> Situation:
        """The state that rewards and experts depend on."""
        roles = self._roles[self.data.contact.geom]
        pairs = (roles[:, 0] | roles[:, 1]).tolist()
        left, right = (OBJECT | LEFT_PAD) in pairs, (OBJECT | RIGHT_PAD) in pairs
        target, support, room = self._target_place, STAND_HEIGHT, ON_STAND
        if self.layout.targets == "block":
            x, y, z = self.data.xpos[self._block]
            target, support, room = np.array([x, y, 0.0]), float(z) + BLOCK[2], ON_BLOCK
        handle = self.layout.targets == "drawer"
        return Situation(
            tool=self.data.site_xpos[self._tool].copy(),
            object=(self.data.geom_xpos[self._handle] if handle else self.data.xpos[self._object]).copy(),
            target=target,
            rest=HANDLE_PLACE[2] if handle else HEIGHTS[self.look.objects[0][1]] * self.look.sizes[0],
            held=left and right,
            touched=left or right,
            support=support,
            room=room,
            misaligned=self._misaligned() if self.controller.mode == "ee_delta_yaw" else 0.0,
        )

    def _misaligned(self) -> float:
        """Radians from how the hand is turned to the nearest way to close it across the object."""
        turn = heading(self.data.xmat[self._object]) - heading(self.data.site_xmat[self._tool])
        return folded(turn, np.pi / 2 if self.layout.kind == "plain" and self.layout.objects else np.pi)

    def _disturbed(self, action: NDArray[np.float32]) -> NDArray[np.float32]:
        """The action as it is executed: with the noise of this step, if there is any."""
        if not self.action_noise:
            return action
        noise = numpy_rng(self._seeds[1], "actuators", self.steps).normal(size=action.shape)
        return (action + self.action_noise * noise).astype(np.float32)

    def rearrange(
        self,
        tool: Vector,
        opening: float,
        object: Vector | None = None,
        *,
        yaw: float = 0.0,
        drawer: float | None = None,
    ) -> Shown:
        """The present scene at rest with the tool (3,), and the object's middle (3,) if given, put elsewhere.

        The hand is turned by `yaw`, and the drawer asked for is open by `drawer` metres if that is given.
        """
        self._place_arm(tool, opening, yaw)
        if object is not None:
            address = self.model.joint("object0").qposadr[0]
            self.data.qpos[address : address + 3] = object
        if drawer is not None:
            self.data.qpos[self.model.joint("target0").qposadr[0]] = drawer
        mujoco.mj_forward(self.model, self.data)
        self._now = self.situation()
        self.progress = progress(self.task, self._now)
        return self.shown()

    def state_dict(self) -> dict[str, Any]:
        """The episode as it stands: an environment made alike that loads it goes on bit for bit."""
        physics = np.zeros(mujoco.mj_stateSize(self.model, FULL_STATE))
        mujoco.mj_getState(self.model, self.data, physics, FULL_STATE)
        return {
            "seeds": list(self._seeds),
            "target_place": self._moved_target,
            "steps": self.steps,
            "over": self._over,
            "succeeded": self._succeeded,
            "progress": self.progress,
            "physics": physics.tolist(),
            "controller": self.controller.state().tolist(),
            "delayed": [action.tolist() for action in self._delayed],
            "random": self.np_random.bit_generator.state,
        }

    def load_state_dict(self, state: Mapping[str, Any]) -> Shown:
        """Go on where `state_dict` was taken; returns the observation there."""
        scene_seed, start_seed = state["seeds"]
        self._begin(scene_seed, start_seed, state.get("target_place"))
        mujoco.mj_setState(self.model, self.data, np.asarray(state["physics"]), FULL_STATE)
        mujoco.mj_forward(self.model, self.data)
        # forward has overwritten what the solver starts its next step from
        mujoco.mj_setState(self.model, self.data, np.asarray(state["physics"]), FULL_STATE)
        self.controller.restore(np.asarray(state["controller"]))
        self._delayed = [np.array(action, np.float32) for action in state["delayed"]]
        self.steps, self._over, self.progress = state["steps"], state["over"], state["progress"]
        self._succeeded = bool(state.get("succeeded", False))
        self._now = self.situation()
        self.np_random.bit_generator.state = state["random"]
        return self.shown()

    def _begin(self, scene_seed: int, start_seed: int, target_place: tuple[float, float] | None = None) -> None:
        self._seeds, self._moved_target = (scene_seed, start_seed), target_place
        if target_place is not None and self.layout.targets != "mark":
            raise ConfigError(f"target_place is for marks: {self.task} has none")
        things = 1 + self.layout.distractors
        of: dict[str, Any] = {"things": things, "kind": self.layout.kind}
        self.look = draw_look(scene_seed, self.randomise, self.shift, clutter=self.layout.clutter, **of)
        self.start = draw_start(start_seed, self.task, self.shift, **of)
        if target_place is not None:
            self.start.targets[0] = target_place
        self.instruction = phrase(
            self.task,
            object=" ".join(self.look.objects[0]),
            target=self.look.targets[0],
            held_out=shifts(self.shift, "wording"),
            rng=numpy_rng(scene_seed, "wording"),
        )
        self.dynamics, self._delayed = draw_dynamics(start_seed, self.shift, latency=self.latency), []
        self._set_dynamics()
        mujoco.mj_resetData(self.model, self.data)
        dress(self.model, self.look, self.layout)
        place(self.model, self.data, self.look, self.start, self.layout)
        self._place_arm(self.start.tool)
        self._target_place = np.array([*self.start.targets[0], 0.0])
        self.steps, self._over, self._succeeded = 0, False, False
        mujoco.mj_forward(self.model, self.data)
        self._rest = self.data.xpos[self._objects].copy()
        self._now = self.situation()
        self.progress = progress(self.task, self._now)

    def _set_dynamics(self) -> None:
        if not any(shifts(self.shift, factor) for factor in ("friction", "mass")):
            return
        self.model.geom_friction[:] = self.dynamics.friction * self._nominal["geom_friction"]
        for name in ("body_mass", "body_inertia"):
            getattr(self.model, name)[self._objects] = self.dynamics.mass * self._nominal[name][self._objects]
        # what the solver derives from masses
        mujoco.mj_setConst(self.model, self.data)

    def _place_arm(self, tool: Vector, opening: float = 1.0, yaw: float = 0.0) -> None:
        joints = self.controller.kinematics.solve(self._ready, tool, 6 if yaw == 0.0 else 12, yaw)
        self.controller.begin(joints)
        self.controller.yaw = yaw
        self.data.qpos[:7] = self.data.ctrl[:7] = joints
        self.data.qpos[7:9] = self.data.ctrl[7:9] = FINGER_TRAVEL * opening

    def _locate(self) -> None:
        self._tool = self.model.site("tool").id
        # a drawer takes the object's part
        name = "target" if self.layout.targets == "drawer" else "object"
        self._object = self.model.body(f"{name}0").id
        self._objects = [self.model.body(f"{name}{number}").id for number in range(1 + self.layout.distractors)]
        if self.layout.targets == "block":
            self._block = self.model.body("target0").id
        if self.layout.targets == "drawer":
            self._handle = self.model.geom("target0_handle").id
        self._object_geoms = np.isin(self.model.geom_bodyid, self._objects)
        arms = [self._tool, *([self.model.site(f"{SECOND}tool").id] if self.layout.second_arm else [])]
        roots = self.model.body_rootid[self.model.site_bodyid[arms]]
        self._robot_geoms = np.isin(self.model.body_rootid[self.model.geom_bodyid], roots)
        self._roles = np.where(self.model.geom_bodyid == self._object, OBJECT, 0)
        self._roles[self.model.geom("left_pad").id] = LEFT_PAD
        self._roles[self.model.geom("right_pad").id] = RIGHT_PAD

    def _observation_space(self) -> spaces.Dict:
        if not self.cameras:
            size = FACTS_SIZE + (self.controller.mode == "ee_delta_yaw")
            return spaces.Dict({"state": spaces.Box(-FAR, FAR, (size,), np.float32)})
        parts: dict[str, spaces.Space[Any]] = {
            camera: spaces.Box(0, 255, (self.image_size, self.image_size, 3), np.uint8) for camera in self.cameras
        }
        parts["state"] = spaces.Box(-FAR, FAR, (STATE_SIZE,), np.float32)
        parts["instruction"] = spaces.Text(LONGEST, charset=PRINTABLE)
        if self.true_state:
            size = true_state_size(self.controller.mode)
            parts["true_state"] = spaces.Box(-np.inf, np.inf, (size,), np.float32)
        return spaces.Dict(parts)

    def shown(self) -> Shown:
        """The observation of the present state."""
        joints = self.data.qpos[:9].tolist()
        arm = [*joints[:7], (joints[7] + joints[8]) / (2 * FINGER_TRAVEL), *self.data.site_xpos[self._tool].tolist()]
        if not self.cameras:
            now = self._now
            facts = [*arm, *now.object, *(now.object - now.tool), *(now.target - now.object), float(now.held)]
            facts += self._turns()
            return {"state": between(np.array(facts), -FAR, FAR).astype(np.float32)}
        shown = {**self._draw(self.cameras), "state": np.array(arm, np.float32), "instruction": self.instruction}
        return shown | ({"true_state": self._true_state()} if self.true_state else {})

    def _true_state(self) -> NDArray[np.float32]:
        """(14,) what a value depends on: offsets and distances in decimetres, height, opening, contacts, progress.

        Where the hand can turn, (15,): also the angle to the object's grip.
        """
        now, opening = self._now, float(self.data.qpos[7:9].mean()) / FINGER_TRAVEL
        reach, carry = 10 * (now.object - now.tool), 10 * (now.target - now.object)
        lengths = [np.linalg.norm(reach), np.linalg.norm(reach[:2]), np.linalg.norm(carry[:2])]
        height = 10 * (float(now.object[2]) - now.rest)
        facts = [*reach, *carry, *lengths, height, opening, now.held, now.touched, self.progress]
        return np.array(facts + self._turns(), np.float32)

    def _turns(self) -> list[float]:
        return [self._now.misaligned] if self.controller.mode == "ee_delta_yaw" else []

    def _draw(self, cameras: tuple[str, ...]) -> dict[str, Image]:
        if self._renderer is None:
            self._renderer = Renderer(self.model, self.image_size)
        return self._renderer.draw(self.data, cameras)

    def _info(self) -> dict[str, Any]:
        return {
            "success": self.progress == 1.0,
            "progress": self.progress,
            "instruction": self.instruction,
            "task": self.task,
            "step": self.steps,
            "seeds": self._seeds,
            "contact": self._contact(),
            "displacement": float(np.linalg.norm(self.data.xpos[self._objects] - self._rest, axis=1).sum()),
        }

    def _contact(self) -> bool:
        """Whether the robot touches an object."""
        pairs = self.data.contact.geom
        robot, thing = self._robot_geoms[pairs], self._object_geoms[pairs]
        return bool((robot[:, 0] & thing[:, 1] | robot[:, 1] & thing[:, 0]).any())


def observe(shown: Mapping[str, Any], info: Mapping[str, Any]) -> Observation:
    """What a policy is shown: the instruction, the pictures and the arm's own state."""
    images = {camera: shown[camera] for camera in CAMERAS if camera in shown}
    return Observation(text=str(info["instruction"]), images=images, state=shown["state"])
