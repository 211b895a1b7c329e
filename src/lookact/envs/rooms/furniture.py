"""The 17 classes as compound shapes: how large each may be, its hues, and the parts it is made of.

An object stands in its own frame on z = 0, centred on x = y = 0, and faces +y. Its parts fill its size exactly.
"""

from __future__ import annotations

import colorsys
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from lookact.envs.rooms import fixtures, living
from lookact.envs.rooms.parts import Color, Part

Range = tuple[float, float]
Size = tuple[float, float, float]


@dataclass(frozen=True)
class Kind:
    """How the objects of one class vary."""

    build: Callable[[float, float, float, Color, Color], list[Part]]
    """Width, depth, height, main and second colour to parts."""
    width: Range
    depth: Range
    height: Range
    main: tuple[Range, Range, Range]
    """Hue, saturation and value; a hue family of its own helps small models see the class."""
    second: tuple[Range, Range, Range]
    at_wall: bool = True


WOOD = ((0.07, 0.09), (0.45, 0.6), (0.45, 0.62))
WHITE = ((0.1, 0.15), (0.0, 0.04), (0.93, 1.0))
DARK = ((0.6, 0.66), (0.1, 0.25), (0.14, 0.22))
STEEL = ((0.55, 0.6), (0.05, 0.12), (0.68, 0.8))

KINDS: dict[str, Kind] = {
    "cabinet": Kind(
        living.cabinet, (0.7, 1.2), (0.4, 0.55), (0.8, 1.7), ((0.06, 0.08), (0.6, 0.75), (0.42, 0.58)), WOOD
    ),
    "refrigerator": Kind(
        fixtures.refrigerator, (0.6, 0.8), (0.6, 0.7), (1.6, 1.9), ((0.54, 0.58), (0.14, 0.26), (0.8, 0.94)), DARK
    ),
    "shelf": Kind(
        living.shelf, (0.75, 1.15), (0.28, 0.36), (1.4, 1.95), ((0.04, 0.06), (0.5, 0.65), (0.26, 0.36)), WOOD
    ),
    "stove": Kind(
        fixtures.stove, (0.55, 0.72), (0.55, 0.65), (0.95, 1.08), ((0.6, 0.7), (0.04, 0.12), (0.24, 0.36)), STEEL
    ),
    "bed": Kind(living.bed, (1.2, 1.7), (1.9, 2.1), (0.8, 1.1), ((0.74, 0.83), (0.4, 0.62), (0.6, 0.85)), WOOD),
    "sink": Kind(fixtures.sink, (0.5, 0.8), (0.42, 0.52), (0.98, 1.12), ((0.6, 0.64), (0.6, 0.8), (0.42, 0.62)), WHITE),
    "washer": Kind(
        fixtures.washer, (0.58, 0.64), (0.56, 0.64), (0.84, 0.9), WHITE, ((0.53, 0.57), (0.6, 0.8), (0.55, 0.8))
    ),
    "toilet": Kind(
        fixtures.toilet, (0.38, 0.44), (0.64, 0.72), (0.76, 0.86), WHITE, ((0.08, 0.12), (0.1, 0.2), (0.82, 0.9))
    ),
    "bathtub": Kind(
        fixtures.bathtub, (1.4, 1.7), (0.7, 0.8), (0.62, 0.72), WHITE, ((0.46, 0.51), (0.45, 0.65), (0.75, 0.92))
    ),
    "oven": Kind(
        fixtures.oven, (0.58, 0.66), (0.56, 0.62), (1.25, 1.5), ((0.97, 1.0), (0.68, 0.82), (0.5, 0.68)), STEEL
    ),
    "dishwasher": Kind(
        fixtures.dishwasher, (0.45, 0.62), (0.56, 0.62), (0.82, 0.88), ((0.37, 0.43), (0.22, 0.4), (0.7, 0.86)), STEEL
    ),
    "fireplace": Kind(
        living.fireplace, (1.1, 1.5), (0.36, 0.46), (1.1, 1.3), ((0.015, 0.035), (0.55, 0.7), (0.56, 0.7)), WHITE
    ),
    "stool": Kind(
        living.stool, (0.34, 0.42), (0.34, 0.42), (0.45, 0.68), ((0.055, 0.075), (0.85, 0.98), (0.9, 1.0)), STEEL, False
    ),
    "chair": Kind(
        living.chair, (0.42, 0.5), (0.45, 0.52), (0.86, 1.0), ((0.13, 0.155), (0.75, 0.92), (0.82, 0.96)), WOOD, False
    ),
    "table": Kind(
        living.table, (0.95, 1.5), (0.7, 0.9), (0.72, 0.77), ((0.085, 0.1), (0.3, 0.42), (0.74, 0.88)), WOOD, False
    ),
    "tv_monitor": Kind(
        living.tv_monitor, (0.95, 1.4), (0.36, 0.45), (1.05, 1.3), DARK, ((0.08, 0.1), (0.2, 0.35), (0.5, 0.65))
    ),
    "sofa": Kind(living.sofa, (1.5, 2.05), (0.8, 0.92), (0.76, 0.88), ((0.3, 0.4), (0.45, 0.65), (0.38, 0.6)), WOOD),
}


SCREEN = Kind(living.screen, (0.5, 1.4), (0.04, 0.1), (0.35, 0.8), DARK, DARK)
"""A TV without its stand, on a wall or on something."""
BLOCK = Kind(living.block, (0.1, 1.0), (0.1, 1.0), (0.1, 1.0), ((0.0, 1.0), (0.25, 0.5), (0.5, 0.85)), WOOD)
"""Anything of a class that has no shape of its own."""


@dataclass(frozen=True)
class Piece:
    """One object, not yet placed."""

    label: str
    size: Size
    """Width, depth, height."""
    parts: NDArray[np.float64]
    """(p, 10) in its own frame."""


def make_piece(label: str, rng: np.random.Generator, size: Size | None = None, kind: Kind | None = None) -> Piece:
    """An object of the class with its own colours, and its own size and shape unless they are given."""
    kind = kind or KINDS[label]
    draws = rng.random(9).tolist()
    ranges = (kind.width, kind.depth, kind.height, *kind.main, *kind.second)
    width, depth, height, *hues = (low + (high - low) * draw for (low, high), draw in zip(ranges, draws))
    if size is not None:
        # built as large as its class may be, then stretched: thin boards and knobs keep their look
        width, depth, height = (min(max(want, low), high) for want, (low, high) in zip(size, ranges))
    parts = np.array(kind.build(width, depth, height, _color(*hues[:3]), _color(*hues[3:])), dtype=np.float64)
    if size is None:
        return Piece(label, (width, depth, height), parts)
    parts[:, 1:7] *= np.tile(np.array(size) / (width, depth, height), 2)
    return Piece(label, size, parts)


def _color(hue: float, saturation: float, value: float) -> Color:
    """RGB in 0 … 255."""
    red, green, blue = colorsys.hsv_to_rgb(hue % 1.0, saturation, value)
    return 255 * red, 255 * green, 255 * blue
