"""ManiSkill's table with the Panda, objects to push about, and nothing that must be done.

Import it after `device.prepare`: this module imports SAPIEN.
"""

from __future__ import annotations

import functools
from typing import Any

import numpy as np
import sapien
import torch
from mani_skill.envs.sapien_env import BaseEnv
from mani_skill.sensors.camera import CameraConfig
from mani_skill.utils import sapien_utils
from mani_skill.utils.scene_builder.table import TableSceneBuilder
from mani_skill.utils.structs.types import SimConfig

from lookact.envs.maniskill.staging import BASE, TABLE_REPEATS, add_lights, add_room, add_thing, cover, lighten, resting
from lookact.envs.tabletop.orientation import Vector
from lookact.envs.tabletop.randomise import Look, Start
from lookact.types import Image

WRIST_EYE, WRIST_POINT, WRIST_FOVY = (0.1, 0.0, 0.015), (0.05, 0.0, 0.12), 78.0
NEAR, FAR = 0.01, 20.0


@functools.cache
def hold_renderer(device: str) -> Any:
    """One renderer for as long as the process lives: with the last go its shaders, ten seconds of compiling."""
    return sapien.render.RenderSystem(sapien.Device(device))


class Exploration(BaseEnv):  # type: ignore[misc]
    """One table whose look is built once and kept until a reset asks for another."""

    SUPPORTED_ROBOTS = ["panda"]  # noqa: RUF012

    def __init__(self, look: Look, start: Start, joints: Vector, *, image_size: int, device: str) -> None:
        self.look, self.start, self.joints, self.image_size = look, start, joints, image_size
        super().__init__(
            obs_mode="rgb",
            reward_mode="none",
            control_mode="pd_joint_pos",
            robot_uids="panda",
            sim_backend="physx_cpu",
            render_backend=device,
        )
        hold_renderer(device)

    def stage(self, look: Look, start: Start, joints: Vector, *, rebuild: bool) -> None:
        """Begin an episode with the arm at joints (9,), fingers among them; `rebuild` where the look is another."""
        self.look, self.start, self.joints = look, start, joints
        self.reset(seed=0, options={"reconfigure": rebuild})

    def picture(self, camera: str) -> Image:
        """(image_size, image_size, 3) as the camera saw the last step."""
        return np.array(self._last_obs["sensor_data"][camera]["rgb"][0].cpu().numpy())

    def arm(self) -> tuple[Vector, Vector]:
        """Joints (9,), fingers among them, and the tool's place (3,) from the arm's foot."""
        joints, tool = self.agent.robot.get_qpos()[0], self.agent.tcp_pose.p[0]
        return joints.cpu().numpy().astype(np.float64), tool.cpu().numpy().astype(np.float64) - BASE

    @property
    def _default_sim_config(self) -> Any:
        return SimConfig(sim_freq=100, control_freq=10)

    @property
    def _default_sensor_configs(self) -> list[Any]:
        look, size = self.look, self.image_size
        head = sapien_utils.look_at((look.eye + BASE).tolist(), (look.point + BASE).tolist())
        wrist = sapien_utils.look_at(WRIST_EYE, WRIST_POINT, up=(1.0, 0.0, 0.0))
        hand = self.agent.robot.links_map["panda_hand"]
        return [
            CameraConfig("head", head, size, size, np.deg2rad(look.fovy), NEAR, FAR),
            CameraConfig("wrist", wrist, size, size, np.deg2rad(WRIST_FOVY), NEAR, FAR, mount=hand),
        ]

    def _load_agent(self, options: dict[str, Any]) -> None:
        super()._load_agent(options, sapien.Pose(BASE))
        lighten(self.agent.robot)

    def _load_scene(self, options: dict[str, Any]) -> None:
        builder = TableSceneBuilder(self)
        builder.build()
        cover(builder.table, self.look.surfaces[0], repeats=TABLE_REPEATS)
        add_room(self.scene, builder.ground, self.look)
        self.things = [
            add_thing(self.scene, f"object{index}", colour, shape, pose, solid=True)
            for index, ((colour, shape), pose) in enumerate(zip(self.look.objects, self._object_poses()))
        ]
        for index, (colour, shape, x, y) in enumerate(self.look.clutter):
            add_thing(self.scene, f"clutter{index}", colour, shape, resting(shape, x, y), solid=False)

    def _load_lighting(self, options: dict[str, Any]) -> None:
        add_lights(self.scene, self.look)

    def _initialize_episode(self, env_idx: torch.Tensor, options: dict[str, Any]) -> None:
        self.agent.robot.set_pose(sapien.Pose(BASE))
        self.agent.reset(self.joints)
        # a simulated step rounds the poses of what does not move, and pictures would tell how often a scene was used
        for fixed in self.scene.actors.values():
            fixed.set_pose(fixed.initial_pose)
        for thing, pose in zip(self.things, self._object_poses()):
            thing.set_pose(pose)

    def _object_poses(self) -> list[Any]:
        return [resting(shape, *place) for (_, shape), place in zip(self.look.objects, self.start.objects)]
