"""A cabinet of drawers beside each other, which open away from the arm and towards the head camera.

In the cabinet's frame x is the way that drawers open, z is up, and its front is at 0. Each drawer has an upright handle
in front, which fingers can hold from above.
"""

from __future__ import annotations

from typing import Any

import mujoco
import numpy as np

from lookact.envs.tabletop.arm import TOUCHES_ARM, TOUCHES_OBJECTS, TOUCHES_WORLD
from lookact.envs.tabletop.orientation import Vector

BOX = mujoco.mjtGeom.mjGEOM_BOX
TRAVEL = 0.1
"""Metres from shut to open."""
WIDTH, DEPTH, TALL = 0.12, 0.12, 0.06
"""Metres: of a drawer, and of the cabinet."""
HANDLE, HANDLE_PLACE = (0.007, 0.009, 0.022), (0.013, 0.0, 0.062)
"""Half sizes of a handle, and where it is on its drawer."""
ON_HANDLE = np.array([0.0, 0.0, 0.01])
"""From a handle's middle to where the tool holds it."""
WALL = 0.003
WOOD, TRAY = (0.55, 0.43, 0.32, 1.0), (0.8, 0.78, 0.74, 1.0)


def lateral(index: int, drawers: int) -> float:
    """Metres across from the cabinet's middle to the drawer's."""
    return (index - (drawers - 1) / 2) * WIDTH


def add_cabinet(world: Any, drawers: int) -> None:
    """The body `cabinet` with the bodies and slides `target0`, `target1` ... in it."""
    cabinet, half = world.add_body(name="cabinet", pos=[0.42, 0, 0]), drawers * WIDTH / 2 + WALL
    solid = {"type": BOX, "rgba": WOOD, "contype": TOUCHES_WORLD, "conaffinity": TOUCHES_ARM}
    cabinet.add_geom(pos=[-DEPTH / 2, 0, TALL - WALL], size=[DEPTH / 2, half, WALL], **solid)
    cabinet.add_geom(pos=[-DEPTH, 0, TALL / 2], size=[WALL, half, TALL / 2], **solid)
    for side in (-1.0, 1.0):
        cabinet.add_geom(pos=[-DEPTH / 2, side * half, TALL / 2], size=[DEPTH / 2, WALL, TALL / 2], **solid)
    for index in range(drawers):
        _add_drawer(cabinet, index, lateral(index, drawers))


def _add_drawer(cabinet: Any, index: int, across: float) -> None:
    name = f"target{index}"
    drawer = cabinet.add_body(name=name, pos=[0, across, 0])
    slide = mujoco.mjtJoint.mjJNT_SLIDE
    drawer.add_joint(
        name=name, type=slide, axis=[1, 0, 0], range=[0, TRAVEL], limited=1, damping=4, frictionloss=0.4, armature=0.05
    )
    # neither the table nor the cabinet stops it, its slide does
    solid = {"type": BOX, "contype": TOUCHES_OBJECTS, "conaffinity": TOUCHES_ARM, "mass": 0.1}
    drawer.add_geom(pos=[-DEPTH / 2, 0, 0.01], size=[DEPTH / 2 - 0.006, WIDTH / 2 - 0.008, WALL], rgba=TRAY, **solid)
    drawer.add_geom(name=name, pos=[WALL, 0, 0.03], size=[WALL, WIDTH / 2 - 0.004, 0.026], **solid)
    drawer.add_geom(name=f"{name}_handle", pos=HANDLE_PLACE, size=HANDLE, friction=[1.0, 0.01, 0.001], **solid)


def handle_place(cabinet: Vector, across: float, opening: float) -> Vector:
    """A handle's middle (3,) in the world, of a drawer so many metres `across` and so many open.

    `cabinet` is x, y and yaw of the cabinet.
    """
    ahead = HANDLE_PLACE[0] + opening
    c, s = np.cos(cabinet[2]), np.sin(cabinet[2])
    return np.array([cabinet[0] + c * ahead - s * across, cabinet[1] + s * ahead + c * across, HANDLE_PLACE[2]])
