"""Builds a drawn look into a SAPIEN scene: surfaces, lights, things to touch and things that are only seen.

Looks are the MuJoCo table's own, and so is the frame they are told in: the arm stands at its origin, which is `BASE`
in ManiSkill's world.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import sapien
from sapien import render

from lookact.envs.maniskill.meshes import Mesh, rectangle, thin_out
from lookact.envs.tabletop.orientation import turned
from lookact.envs.tabletop.randomise import Look
from lookact.envs.tabletop.scene import COLOURS, CORES, HEIGHTS, SHAPES, SURFACES
from lookact.envs.tabletop.textures import paint

BASE = np.array([-0.615, 0.0, 0.0])
FORWARDS, UPWARDS = (1.0, 0.0, 0.0, 0.0), (np.sqrt(0.5), 0.0, -np.sqrt(0.5), 0.0)
"""Turns that leave the x axis, along which cylinders lie and rectangles face, or raise it."""
AMBIENT = 0.3
BRIGHTNESS = 3.0
"""SAPIEN's lights per MuJoCo's: a surface there gives back a third of what falls on it, here nearly all."""
FLOOR, WALL = np.array([0.0, 0.0, -0.92]), np.array([-0.9, 0.0, 0.5])
"""The middle of what is seen of them, from the arm."""
REACH = 3.0
"""Metres from there to their rims."""
TILE = 0.4
"""Metres that a texture covers before it repeats."""
TABLE_REPEATS = 3
"""Of a surface on ManiSkill's table, so that it is as fine there as on MuJoCo's."""
MIPMAPS = 4
FINE = 1000
"""Triangles from which a part of the arm is thinned out."""
CELL = 0.008
"""Metres within which its corners become one: hardly a pixel of a picture 128 wide."""


def add_lights(scene: Any, look: Look) -> None:
    """The look's two lamps, without shadows, and light from everywhere."""
    scene.set_ambient_light([AMBIENT] * 3)
    for colour, direction in zip(look.lights, look.directions):
        scene.add_directional_light(direction.tolist(), (BRIGHTNESS * colour).tolist())


def add_thing(scene: Any, name: str, colour: str, shape: str, pose: Any, *, solid: bool) -> Any:
    """A thing that can be pushed, or one that is only seen."""
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


def resting(shape: str, x: float, y: float, yaw: float = 0.0) -> Any:
    """The pose of a thing that lies at (x, y) on the table."""
    return sapien.Pose(np.array([x, y, HEIGHTS[shape]]) + BASE, turned(yaw))


def add_room(scene: Any, ground: Any, look: Look) -> None:
    """Draw ManiSkill's ground with two triangles instead of 20,000, and add a wall behind the arm, only seen."""
    builder = scene.create_actor_builder()
    builder.initial_pose = sapien.Pose()
    wall = builder.build_kinematic(name="wall")
    for actor, surface, middle, turn in (
        (ground, look.surfaces[1], FLOOR, UPWARDS),
        (wall, look.surfaces[2], WALL, FORWARDS),
    ):
        square = _shape(rectangle(REACH, TILE), render.RenderMaterial())
        square.local_pose = sapien.Pose(middle + BASE, turn)
        _replace_looks(actor._objs[0], [square])
        cover(actor, surface)


def cover(actor: Any, surface: int, *, repeats: int = 1) -> None:
    """Give everything that is seen of an actor one of the surfaces, without gloss, `repeats` times in each texture."""
    for shape in _looks(actor._objs[0]):
        for part in shape.parts:
            material = part.material
            material.set_base_color_texture(_texture(surface, repeats))
            material.set_base_color([1.0, 1.0, 1.0, 1.0])
            # the grain of ManiSkill's table glitters in pictures as small as these
            material.set_normal_texture(None)
            material.set_roughness_texture(None)
            material.set_metallic_texture(None)
            material.roughness, material.metallic, material.specular = 1.0, 0.0, 0.0


def lighten(robot: Any) -> None:
    """Draw the robot's finest parts with fewer triangles."""
    for link in robot.links:
        entity, light = link._objs[0].entity, []
        for shape in _looks(entity):
            for part in shape.parts:
                mesh = Mesh(part.get_vertices(), part.get_vertex_normal(), part.get_vertex_uv(), part.get_triangles())
                made = _shape(thin_out(mesh, CELL) if len(mesh.triangles) > FINE else mesh, part.material)
                made.local_pose = shape.local_pose
                light.append(made)
        _replace_looks(entity, light)


def linear(colour: tuple[float, float, float]) -> list[float]:
    """A colour as it is written, in the share of light that it gives back."""
    return [float(share**2.2) for share in colour]


def _looks(entity: Any) -> list[Any]:
    body = entity.find_component_by_type(render.RenderBodyComponent)
    return [] if body is None else list(body.render_shapes)


def _replace_looks(entity: Any, shapes: list[Any]) -> None:
    old, new = entity.find_component_by_type(render.RenderBodyComponent), render.RenderBodyComponent()
    if old is not None:
        entity.remove_component(old)
    for shape in shapes:
        new.attach(shape)
    entity.add_component(new)


def _shape(mesh: Mesh, material: Any) -> Any:
    return render.RenderShapeTriangleMesh(mesh.corners, mesh.triangles, mesh.normals, mesh.uvs, material)


def _texture(surface: int, repeats: int) -> Any:
    pattern, first, second = SURFACES[surface]
    picture = np.tile(paint(pattern, first, second, surface), (repeats, repeats, 1))
    opaque = np.concatenate([picture, np.full((*picture.shape[:2], 1), 255, np.uint8)], axis=-1)
    return render.RenderTexture2D(opaque, "R8G8B8A8Unorm", mipmap_levels=MIPMAPS, srgb=True)
