"""Puts a drawn look and start onto a compiled model."""

from __future__ import annotations

from typing import Any

import numpy as np

from lookact.envs.tabletop.arm import TOUCHES_ARM, TOUCHES_OBJECTS
from lookact.envs.tabletop.orientation import look_at, turned
from lookact.envs.tabletop.randomise import Look, Start
from lookact.envs.tabletop.scene import BLOCK, COLOURS, CORES, HEIGHTS, Layout

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
    for index, (colour, shape) in enumerate(look.objects[: layout.objects]):
        _choose_shape(model, f"object{index}", shape, colour, layout)
        _make_solid(model, f"object{index}", shape, layout)
        if layout.sizes:
            _scale(model, f"object{index}", shape, look.sizes[index], layout)
    parts = ("", "_handle") if layout.targets == "drawer" else ("",)
    for index, colour in enumerate(look.targets if layout.targets != "none" else ()):
        for part in parts:
            model.geom(f"target{index}{part}").rgba = [*COLOURS[colour], 1.0]
    for index in range(layout.clutter):
        _place_clutter(model, index, look, layout)


def place(model: Any, data: Any, look: Look, start: Start, layout: Layout) -> None:
    """Objects at rest and targets where they belong; the arm is not touched."""
    if layout.targets == "drawer":
        cabinet = model.body("cabinet")
        cabinet.pos, cabinet.quat = [*start.cabinet[:2], 0.0], turned(start.cabinet[2])
        for index, (across, opening) in enumerate(zip(start.slots, start.openings)):
            model.body(f"target{index}").pos = [0.0, across, 0.0]
            data.qpos[model.joint(f"target{index}").qposadr[0]] = opening
        return
    for index, ((_, shape), (x, y, yaw)) in enumerate(zip(look.objects, start.objects)):
        address = model.joint(f"object{index}").qposadr[0]
        data.qpos[address : address + 7] = [x, y, HEIGHTS[shape] * look.sizes[index], *turned(yaw)]
    for index, (x, y) in enumerate(start.targets if layout.targets != "none" else ()):
        if layout.targets == "block":
            address = model.joint(f"target{index}").qposadr[0]
            data.qpos[address : address + 7] = [x, y, BLOCK[2], *turned(start.turns[index])]
        else:
            model.body(f"target{index}").pos = [x, y, 0.0]


def _choose_shape(model: Any, name: str, chosen: str, colour: str, layout: Layout) -> None:
    for shape in layout.shapes:
        model.geom(f"{name}_{shape}").rgba = [*COLOURS[colour], 1.0 if shape == chosen else 0.0]


def _scale(model: Any, name: str, shape: str, factor: float, layout: Layout) -> None:
    """The chosen shape and its core, so many times as large; bounds that the simulator derived from sizes too."""
    for geom, size in ((f"{name}_{shape}", layout.shapes[shape][1]), (f"{name}_{shape}_core", CORES[shape])):
        scaled = factor * np.array(size)
        index, flat = model.geom(geom).id, shape == "cylinder" and not geom.endswith("core")
        half = np.array([scaled[0], scaled[0], scaled[1]]) if flat else scaled
        model.geom_size[index], model.geom_aabb[index, 3:] = scaled, half
        model.geom_rbound[index] = np.linalg.norm(half[1:] if flat else half)


def _make_solid(model: Any, name: str, chosen: str, layout: Layout) -> None:
    for shape in layout.shapes:
        core = model.geom(f"{name}_{shape}_core")
        core.contype = TOUCHES_OBJECTS if shape == chosen else 0
        core.conaffinity = TOUCHES_OBJECTS | TOUCHES_ARM if shape == chosen else 0


def _place_clutter(model: Any, index: int, look: Look, layout: Layout) -> None:
    if index >= len(look.clutter):
        _choose_shape(model, f"clutter{index}", "", "red", layout)
        return
    colour, shape, x, y = look.clutter[index]
    _choose_shape(model, f"clutter{index}", shape, colour, layout)
    model.body(f"clutter{index}").pos = [x, y, HEIGHTS[shape]]
