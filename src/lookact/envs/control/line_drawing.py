"""Small pictures of thick lines on white, each edge a pixel soft: fast enough to draw every step."""

from __future__ import annotations

import functools

import numpy as np
from numpy.typing import NDArray

from lookact.types import Image

Point = tuple[float, float]


@functools.cache
def grid(size: int) -> tuple[NDArray[np.float32], NDArray[np.float32]]:
    """x and y (size, size) of every pixel's centre, from -1 to 1, y upwards."""
    centres = ((np.arange(size) + 0.5) * 2.0 / size - 1.0).astype(np.float32)
    across, down = np.meshgrid(centres, centres)
    return across, -down


class Sketch:
    """A square picture of `size` pixels; coordinates run from -1 to 1, y upwards."""

    def __init__(self, size: int) -> None:
        self.pixels: Image = np.full((size, size, 3), 255, np.uint8)

    def line(self, start: Point, end: Point, *, width: float, colour: tuple[int, int, int]) -> None:
        """A line with round ends, `width` to each side; a point is a disc."""
        x, y = grid(len(self.pixels))
        along = end[0] - start[0], end[1] - start[1]
        length = max(along[0] ** 2 + along[1] ** 2, 1e-12)
        share = (((x - start[0]) * along[0] + (y - start[1]) * along[1]) / length).clip(0.0, 1.0)
        distance = np.hypot(x - start[0] - share * along[0], y - start[1] - share * along[1])
        pixel = 2.0 / len(self.pixels)
        covered = ((width - distance) / pixel + 0.5).clip(0.0, 1.0)[..., None]
        mixed = self.pixels * (1.0 - covered) + np.array(colour, np.float32) * covered
        self.pixels = np.rint(mixed).astype(np.uint8)
