"""Scenes of coloured shapes, drawn from a random stream: picture, labels of its patches, and what stands where."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from lookact.envs.rooms.pretraining_images import PATCH, LabelledImage

COLOURS = {
    "red": (205, 35, 35),
    "green": (40, 165, 60),
    "blue": (40, 75, 215),
    "yellow": (240, 215, 50),
    "purple": (140, 50, 170),
    "orange": (240, 140, 30),
    "black": (15, 15, 15),
    "white": (250, 250, 250),
}
SHAPES = ("square", "circle", "triangle", "diamond", "cross")
SIZES = (96, 128, 160)
"""Pixels a side."""
CELL = 32
MOST_THINGS = 5


@dataclass(frozen=True)
class Thing:
    """One shape: what it is, and where its centre lies, from 0 to 1 to the right and down."""

    colour: str
    shape: str
    x: float
    y: float

    @property
    def name(self) -> str:
        return f"{self.colour} {self.shape}"


@dataclass(frozen=True)
class ShapeScene:
    """A picture of things, and for each patch how much of it each colour and each shape covers."""

    things: tuple[Thing, ...]
    image: LabelledImage


def draw_scene(rng: np.random.Generator) -> ShapeScene:
    """One to five things of any kind, in cells of a grid that share none, on a grey or pale ground."""
    size = int(rng.choice(SIZES))
    side = size // CELL
    ground = rng.integers(60, 235) + rng.integers(-15, 16, size=3)
    picture = np.clip(ground + rng.normal(0.0, rng.uniform(0, 6), (size, size, 3)), 0, 255)
    patches = size // PATCH
    coverage = np.zeros((patches, patches, len(COLOURS) + len(SHAPES)), dtype=np.float32)
    things = []
    for cell in rng.permutation(side * side)[: rng.integers(1, MOST_THINGS + 1)]:
        colour, shape = str(rng.choice([*COLOURS])), str(rng.choice(SHAPES))
        radius = rng.uniform(10, CELL / 2)
        slack = CELL / 2 - radius
        row, column = divmod(int(cell), side)
        x = CELL * (column + 0.5) + rng.uniform(-slack, slack)
        y = CELL * (row + 0.5) + rng.uniform(-slack, slack)
        covered = outline(shape, size, x, y, radius)
        picture[covered] = np.clip(COLOURS[colour] + rng.integers(-15, 16, size=3), 0, 255)
        share = covered.reshape(patches, PATCH, patches, PATCH).mean(axis=(1, 3))
        for kind in ([*COLOURS].index(colour), len(COLOURS) + SHAPES.index(shape)):
            coverage[..., kind] += share
        things.append(Thing(colour, shape, x / size, y / size))
    depth = np.zeros((patches, patches), dtype=np.float32)
    return ShapeScene(tuple(things), LabelledImage(picture.astype(np.uint8), coverage, depth))


def outline(shape: str, size: int, x: float, y: float, radius: float) -> NDArray[np.bool_]:
    """(size, size) the pixels of a shape with this centre."""
    across: NDArray[np.floating[Any]] = np.abs(np.arange(size) + 0.5 - x)[None, :]
    down: NDArray[np.floating[Any]] = (np.arange(size) + 0.5 - y)[:, None]
    box = (across <= radius) & (np.abs(down) <= radius)
    inside: NDArray[np.bool_] = {
        "square": box,
        "circle": across**2 + down**2 <= radius**2,
        "diamond": across + np.abs(down) <= radius,
        "triangle": box & (2 * across <= down + radius),
        "cross": box & ((across <= radius / 3) | (np.abs(down) <= radius / 3)),
    }[shape]
    return inside
