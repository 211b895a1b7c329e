"""Coloured pieces that furniture and walls are made of, and their assembly into triangles.

A part is a unit shape stretched between two corners. All parts of a room become triangles in a few numpy passes.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from lookact.envs.rooms.scene import Array

Color = tuple[float, float, float]
"""RGB in 0 … 255."""
Part = tuple[float, ...]
"""Shape, then x0 y0 z0 x1 y1 z1, then r g b."""

BOX, TUBE, DISC, BOWL, CONE, FLOOR, CEILING, WALL = range(8)
SIDES = 8


def box(x0: float, y0: float, z0: float, x1: float, y1: float, z1: float, color: Color) -> Part:
    """A cuboid."""
    return (BOX, x0, y0, z0, x1, y1, z1, *color)


def tube(x0: float, y0: float, z0: float, x1: float, y1: float, z1: float, color: Color) -> Part:
    """An upright prism with a round floor plan."""
    return (TUBE, x0, y0, z0, x1, y1, z1, *color)


def disc(x0: float, y0: float, z0: float, x1: float, y1: float, z1: float, color: Color) -> Part:
    """A prism whose axis runs along y: a porthole or a knob on a front."""
    return (DISC, x0, y0, z0, x1, y1, z1, *color)


def bowl(x0: float, y0: float, z0: float, x1: float, y1: float, z1: float, color: Color) -> Part:
    """An upright prism that narrows towards its foot."""
    return (BOWL, x0, y0, z0, x1, y1, z1, *color)


def cone(x0: float, y0: float, z0: float, x1: float, y1: float, z1: float, color: Color) -> Part:
    """An upright prism that narrows towards its top."""
    return (CONE, x0, y0, z0, x1, y1, z1, *color)


def shaded(color: Color, factor: float) -> Color:
    """A darker or lighter colour."""
    return min(255.0, color[0] * factor), min(255.0, color[1] * factor), min(255.0, color[2] * factor)


def _prism(bottom: float, top: float) -> tuple[Array, NDArray[np.int32]]:
    """A unit prism between z = 0 and 1 with those radii (0.5 touches the sides), outward faces."""
    angles = np.arange(SIDES) * (2 * np.pi / SIDES)
    circle = np.stack([np.cos(angles), np.sin(angles)], axis=1)
    low = np.column_stack([0.5 + bottom * circle, np.zeros(SIDES)])
    high = np.column_stack([0.5 + top * circle, np.ones(SIDES)])
    here = np.arange(SIDES)
    there = (here + 1) % SIDES
    fan = np.arange(1, SIDES - 1)
    faces = [
        np.stack([here, there, there + SIDES], axis=1),
        np.stack([here, there + SIDES, here + SIDES], axis=1),
        np.stack([0 * fan, fan + 1, fan], axis=1),
        np.stack([0 * fan, fan, fan + 1], axis=1) + SIDES,
    ]
    return np.concatenate([low, high]), np.concatenate(faces).astype(np.int32)


def _cuboid() -> tuple[Array, NDArray[np.int32]]:
    """The unit cube with outward faces."""
    vertices = np.array([[x, y, z] for z in (0, 1) for x, y in ((0, 0), (1, 0), (1, 1), (0, 1))], dtype=float)
    quads = ((0, 3, 2, 1), (4, 5, 6, 7), (0, 1, 5, 4), (1, 2, 6, 5), (2, 3, 7, 6), (3, 0, 4, 7))
    faces = [triangle for a, b, c, d in quads for triangle in ((a, b, c), (a, c, d))]
    return vertices, np.array(faces, dtype=np.int32)


def _quad(corners: Sequence[tuple[int, int, int]]) -> tuple[Array, NDArray[np.int32]]:
    """A flat rectangle, seen from the side where its corners run counter-clockwise."""
    return np.array(corners, dtype=float), np.array([[0, 1, 2], [0, 2, 3]], dtype=np.int32)


def _lying(shape: tuple[Array, NDArray[np.int32]]) -> tuple[Array, NDArray[np.int32]]:
    """An upright shape turned so that its axis runs along y."""
    vertices, faces = shape
    return vertices[:, [0, 2, 1]], faces[:, ::-1]


TEMPLATES = {
    BOX: _cuboid(),
    TUBE: _prism(0.5, 0.5),
    DISC: _lying(_prism(0.5, 0.5)),
    BOWL: _prism(0.3, 0.5),
    CONE: _prism(0.5, 0.08),
    FLOOR: _quad([(0, 0, 0), (1, 0, 0), (1, 1, 0), (0, 1, 0)]),
    CEILING: _quad([(0, 0, 0), (0, 1, 0), (1, 1, 0), (1, 0, 0)]),
    # runs from (x0, y0) to (x1, y1) and faces to the left of that way
    WALL: _quad([(0, 0, 0), (0, 0, 1), (1, 1, 1), (1, 1, 0)]),
}


@dataclass(frozen=True)
class Placed:
    """Parts in their own frame and where that frame stands in the room."""

    parts: NDArray[np.float64]
    """(p, 10)"""
    x: float = 0.0
    y: float = 0.0
    yaw: float = 0.0
    instance: int = -1


@dataclass(frozen=True)
class Triangles:
    """A coloured mesh whose faces know their object."""

    vertices: NDArray[np.float32]
    faces: NDArray[np.int32]
    colors: NDArray[np.uint8]
    instances: NDArray[np.int32]


def assemble(placed: Sequence[Placed]) -> Triangles:
    """Every part as triangles in the world, shape by shape."""
    counts = [len(item.parts) for item in placed]
    parts = np.concatenate([item.parts for item in placed])
    frame = np.array([(item.x, item.y, np.cos(item.yaw), np.sin(item.yaw), item.instance) for item in placed])
    frame = np.repeat(frame, counts, axis=0)
    vertices, faces, colors, instances = [], [], [], []
    offset = 0
    for shape in np.unique(parts[:, 0]).astype(int):
        unit, triangles = TEMPLATES[shape]
        chosen = parts[:, 0] == shape
        low, high, color = parts[chosen, None, 1:4], parts[chosen, None, 4:7], parts[chosen, 7:10]
        vertices.append(_place(low + unit * (high - low), frame[chosen]))
        number = len(color)
        starts = offset + np.arange(number, dtype=np.int32) * len(unit)
        faces.append((triangles + starts[:, None, None]).reshape(-1, 3))
        colors.append(np.repeat(color, len(unit), axis=0))
        instances.append(np.repeat(frame[chosen, 4], len(triangles)))
        offset += number * len(unit)
    return Triangles(
        np.concatenate(vertices).astype(np.float32),
        np.concatenate(faces).astype(np.int32),
        np.concatenate(colors).clip(0, 255).astype(np.uint8),
        np.concatenate(instances).astype(np.int32),
    )


def _place(local: Array, frame: Array) -> Array:
    """Vertices (p, n, 3) of parts turned and moved into the world: (p * n, 3)."""
    x, y, cosine, sine = frame[:, :4, None].transpose(1, 0, 2)
    world = np.empty_like(local)
    world[..., 0] = x + cosine * local[..., 0] - sine * local[..., 1]
    world[..., 1] = y + sine * local[..., 0] + cosine * local[..., 1]
    world[..., 2] = local[..., 2]
    return world.reshape(-1, 3)
