"""Puts a drawn look and start onto a compiled model."""

from __future__ import annotations

from typing import Any

import numpy as np

from lookact.envs.tabletop.arm import TOUCHES_ARM, TOUCHES_OBJECTS
from lookact.envs.tabletop.orientation import look_at, turned
from lookact.envs.tabletop.randomise import Look, Start
from lookact.envs.tabletop.scene import COLOURS, HEIGHTS, SHAPES, Layout

UP = np.array([0.0, 0.0, 1.0])


def dress(model: Any, look: Look, layout: Layout) -> None:
    """Surfaces, lights, the head camera, colours, shapes and clutter."""
    for name, surface in zip(("table", "floor", "wall"), look.surfaces):
        model.geom(name).matid = model.material(f"surface{surface}").id
    for index, (colour, direction) in enumerate(zip(look.lights, look.directions)):
        light = model.light(f"light{index}")
        light.diffuse = colour
        light.dir = direction / np.linalg.norm(direction)
    camera = model.camera("head")
    camera.pos, camera.fovy = look.eye, look.fovy
    camera.quat = look_at(look.eye, look.point, UP)
    for index, (colour, shape) in enumerate(look.objects):
        _choose_shape(model, f"object{index}", shape, colour)
        _make_solid(model, f"object{index}", shape)
    for index, colour in enumerate(look.targets if layout.targets != "none" else ()):
        model.geom(f"target{index}").rgba = [*COLOURS[colour], 1.0]
    for index in range(layout.clutter):
        _place_clutter(model, index, look)


def place(model: Any, data: Any, look: Look, start: Start, layout: Layout) -> None:
    """Objects at rest and targets where they belong; the arm is not touched."""
    for index, ((_, shape), (x, y, yaw)) in enumerate(zip(look.objects, start.objects)):
        address = model.joint(f"object{index}").qposadr[0]
        data.qpos[address : address + 7] = [x, y, HEIGHTS[shape], *turned(yaw)]
    for index, (x, y) in enumerate(start.targets if layout.targets != "none" else ()):
        model.body(f"target{index}").pos = [x, y, 0.0]


def _choose_shape(model: Any, name: str, chosen: str, colour: str) -> None:
    for shape in SHAPES:
        model.geom(f"{name}_{shape}").rgba = [*COLOURS[colour], 1.0 if shape == chosen else 0.0]


def _make_solid(model: Any, name: str, chosen: str) -> None:
    for shape in SHAPES:
        core = model.geom(f"{name}_{shape}_core")
        core.contype = TOUCHES_OBJECTS if shape == chosen else 0
        core.conaffinity = TOUCHES_OBJECTS | TOUCHES_ARM if shape == chosen else 0


def _place_clutter(model: Any, index: int, look: Look) -> None:
    if index >= len(look.clutter):
        _choose_shape(model, f"clutter{index}", "", "red")
        return
    colour, shape, x, y = look.clutter[index]
    _choose_shape(model, f"clutter{index}", shape, colour)
    model.body(f"clutter{index}").pos = [x, y, HEIGHTS[shape]]
