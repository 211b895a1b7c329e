"""The SAPIEN side of `lookact/ManiSkill-v0`: ManiSkill's table with the Panda, objects to push about, and no task.

A scene is built from the MuJoCo table's domain randomisation and in its frame: the arm stands at the origin, which is
`BASE` in ManiSkill's world frame. Import this module after `device.prepare`: it imports SAPIEN.
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
from sapien import render

from lookact.envs.maniskill.meshes import Mesh, decimate, rectangle
from lookact.envs.tabletop.orientation import Vector, turned
from lookact.envs.tabletop.randomise import Look, Start
from lookact.envs.tabletop.scene import COLOURS, CORES, HEIGHTS, SHAPES, SURFACES
from lookact.envs.tabletop.textures import paint
from lookact.types import Image

BASE = np.array([-0.615, 0.0, 0.0])
FORWARDS, UPWARDS = (1.0, 0.0, 0.0, 0.0), (np.sqrt(0.5), 0.0, -np.sqrt(0.5), 0.0)
"""Quaternions that keep the x axis, along which cylinders lie and rectangles face, or turn it upwards."""
AMBIENT = 0.3
BRIGHTNESS = 3.0
"""SAPIEN's light intensity per MuJoCo's: surfaces reflect a third of the light there, here nearly all."""
FLOOR, WALL = np.array([0.0, 0.0, -0.92]), np.array([-0.9, 0.0, 0.5])
"""Centres of the visible part, from the arm."""
HALF_SIZE = 3.0
"""Half side of floor and wall, in metres."""
TILE = 0.4
"""Metres that a texture covers before it repeats."""
TABLE_REPEATS = 3
"""Of a surface on ManiSkill's table, so that it is as fine there as on MuJoCo's."""
MIPMAPS = 4
FINE = 1000
"""Triangles above which a part of the arm is decimated."""
CELL = 0.008
"""Cell of the vertex clustering, in metres: hardly a pixel of an image 128 wide."""
WRIST_EYE, WRIST_POINT, WRIST_FOVY = (0.1, 0.0, 0.015), (0.05, 0.0, 0.12), 78.0
NEAR, FAR = 0.01, 20.0


@functools.cache
def hold_renderer(device: str) -> Any:
    """One renderer for the life of the process: the last one takes its compiled shaders (ten seconds) with it."""
    return sapien.render.RenderSystem(sapien.Device(device))


class Exploration(BaseEnv):  # type: ignore[misc]
    """One table, whose scene is built once and kept until an episode needs another."""

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

    def begin_episode(self, look: Look, start: Start, joints: Vector, *, rebuild: bool) -> None:
        """Begin an episode with the arm at joints (9,), fingers among them; `rebuild` for another scene."""
        self.look, self.start, self.joints = look, start, joints
        self.reset(seed=0, options={"reconfigure": rebuild})

    def image(self, camera: str) -> Image:
        """(image_size, image_size, 3) of the last step."""
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
        decimate_robot(self.agent.robot)

    def _load_scene(self, options: dict[str, Any]) -> None:
        builder = TableSceneBuilder(self)
        builder.build()
        apply_texture(builder.table, self.look.surfaces[0], repeats=TABLE_REPEATS)
        add_room(self.scene, builder.ground, self.look)
        self.objects = [
            add_object(self.scene, f"object{index}", colour, shape, pose, solid=True)
            for index, ((colour, shape), pose) in enumerate(zip(self.look.objects, self._object_poses()))
        ]
        for index, (colour, shape, x, y) in enumerate(self.look.clutter):
            add_object(self.scene, f"clutter{index}", colour, shape, resting_pose(shape, x, y), solid=False)

    def _load_lighting(self, options: dict[str, Any]) -> None:
        add_lights(self.scene, self.look)

    def _initialize_episode(self, env_idx: torch.Tensor, options: dict[str, Any]) -> None:
        self.agent.robot.set_pose(sapien.Pose(BASE))
        self.agent.reset(self.joints)
        # a simulated step rounds the poses of fixed actors: images would depend on how often a scene was used
        for fixed in self.scene.actors.values():
            fixed.set_pose(fixed.initial_pose)
        for item, pose in zip(self.objects, self._object_poses()):
            item.set_pose(pose)

    def _object_poses(self) -> list[Any]:
        return [resting_pose(shape, *place) for (_, shape), place in zip(self.look.objects, self.start.objects)]


def add_lights(scene: Any, look: Look) -> None:
    """Two directional lights without shadows, and ambient light."""
    scene.set_ambient_light([AMBIENT] * 3)
    for colour, direction in zip(look.lights, look.directions):
        scene.add_directional_light(direction.tolist(), (BRIGHTNESS * colour).tolist())


def add_object(scene: Any, name: str, colour: str, shape: str, pose: Any, *, solid: bool) -> Any:
    """A dynamic object, or (not `solid`) a visual one without collisions."""
    builder = scene.create_actor_builder()
    material = render.RenderMaterial(base_color=[*linear(COLOURS[colour]), 1.0])
    half = SHAPES[shape][1]
    if shape == "cylinder":
        builder.add_cylinder_visual(sapien.Pose(q=UPWARDS), half[0], half[1], material)
    else:
        builder.add_box_visual(half_size=half, material=material)
    if solid:
        builder.add_box_collision(half_size=CORES[shape])
    builder.initial_pose = pose
    return builder.build(name=name) if solid else builder.build_kinematic(name=name)


def resting_pose(shape: str, x: float, y: float, yaw: float = 0.0) -> Any:
    """The pose of an object that lies at (x, y) on the table."""
    return sapien.Pose(np.array([x, y, HEIGHTS[shape]]) + BASE, turned(yaw))


def add_room(scene: Any, ground: Any, look: Look) -> None:
    """Render ManiSkill's ground with two triangles instead of 20,000, and add a wall without collisions."""
    builder = scene.create_actor_builder()
    builder.initial_pose = sapien.Pose()
    wall = builder.build_kinematic(name="wall")
    for actor, surface, middle, turn in (
        (ground, look.surfaces[1], FLOOR, UPWARDS),
        (wall, look.surfaces[2], WALL, FORWARDS),
    ):
        square = _shape(rectangle(HALF_SIZE, TILE), render.RenderMaterial())
        square.local_pose = sapien.Pose(middle + BASE, turn)
        _replace_visuals(actor._objs[0], [square])
        apply_texture(actor, surface)


def apply_texture(actor: Any, surface: int, *, repeats: int = 1) -> None:
    """Give all visuals of an actor the matte texture of a surface, tiled `repeats` times."""
    for shape in _visuals(actor._objs[0]):
        for part in shape.parts:
            material = part.material
            material.set_base_color_texture(_texture(surface, repeats))
            material.set_base_color([1.0, 1.0, 1.0, 1.0])
            # the normal map of ManiSkill's table glitters in images this small
            material.set_normal_texture(None)
            material.set_roughness_texture(None)
            material.set_metallic_texture(None)
            material.roughness, material.metallic, material.specular = 1.0, 0.0, 0.0


def decimate_robot(robot: Any) -> None:
    """Render the robot's finest parts with fewer triangles."""
    for link in robot.links:
        entity, light = link._objs[0].entity, []
        for shape in _visuals(entity):
            for part in shape.parts:
                mesh = Mesh(part.get_vertices(), part.get_vertex_normal(), part.get_vertex_uv(), part.get_triangles())
                made = _shape(decimate(mesh, CELL) if len(mesh.triangles) > FINE else mesh, part.material)
                made.local_pose = shape.local_pose
                light.append(made)
        _replace_visuals(entity, light)


def linear(colour: tuple[float, float, float]) -> list[float]:
    """An sRGB colour in linear light."""
    return [float(share**2.2) for share in colour]


def _visuals(entity: Any) -> list[Any]:
    body = entity.find_component_by_type(render.RenderBodyComponent)
    return [] if body is None else list(body.render_shapes)


def _replace_visuals(entity: Any, shapes: list[Any]) -> None:
    old, new = entity.find_component_by_type(render.RenderBodyComponent), render.RenderBodyComponent()
    if old is not None:
        entity.remove_component(old)
    for shape in shapes:
        new.attach(shape)
    entity.add_component(new)


def _shape(mesh: Mesh, material: Any) -> Any:
    return render.RenderShapeTriangleMesh(mesh.vertices, mesh.triangles, mesh.normals, mesh.uvs, material)


def _texture(surface: int, repeats: int) -> Any:
    pattern, first, second = SURFACES[surface]
    image = np.tile(paint(pattern, first, second, surface), (repeats, repeats, 1))
    opaque = np.concatenate([image, np.full((*image.shape[:2], 1), 255, np.uint8)], axis=-1)
    return render.RenderTexture2D(opaque, "R8G8B8A8Unorm", mipmap_levels=MIPMAPS, srgb=True)
