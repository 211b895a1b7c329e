"""Surfaces drawn from a formula: every texture is a function of its kind, its two colours and its number."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
from numpy.typing import NDArray

from lookact.seeding import numpy_rng
from lookact.types import Image

SIZE = 64
Colour = tuple[float, float, float]
Grid = NDArray[np.float64]


def _smooth(number: int) -> Grid:
    """(size, size) soft noise in 0..1 that repeats without a seam."""
    rng = numpy_rng(number, "noise")
    across, down = np.meshgrid(np.arange(SIZE), np.arange(SIZE))
    waves = np.zeros((SIZE, SIZE))
    for _ in range(8):
        turns = rng.integers(-4, 5, 2)
        waves += np.sin(2 * np.pi * (turns[0] * across + turns[1] * down) / SIZE + rng.uniform(0, 2 * np.pi))
    low, high = waves.min(), waves.max()
    return np.asarray((waves - low) / (high - low))


def _plain(number: int) -> Grid:
    return 0.25 * _smooth(number)


def _wood(number: int) -> Grid:
    rows = np.arange(SIZE)[:, None] / SIZE
    return 0.5 + 0.5 * np.sin(2 * np.pi * (6 * rows + 0.8 * _smooth(number)))


def _checks(number: int) -> Grid:
    tile = SIZE // 4
    across, down = np.meshgrid(np.arange(SIZE) // tile, np.arange(SIZE) // tile)
    return ((across + down) % 2).astype(float)


def _stripes(number: int) -> Grid:
    return np.tile((np.arange(SIZE) // (SIZE // 8) % 2).astype(float), (SIZE, 1))


def _tiles(number: int) -> Grid:
    tile = SIZE // 4
    across, down = np.meshgrid(np.arange(SIZE) % tile, np.arange(SIZE) % tile)
    return ((across < 1) | (down < 1)).astype(float)


def _dots(number: int) -> Grid:
    tile = SIZE // 4
    across, down = np.meshgrid(np.arange(SIZE) % tile, np.arange(SIZE) % tile)
    return np.asarray(np.hypot(across - tile / 2, down - tile / 2) < tile / 4, float)


def _marble(number: int) -> Grid:
    return np.asarray(np.abs(2 * _smooth(number) - 1) ** 0.5)


PATTERNS: dict[str, Callable[[int], Grid]] = {
    "plain": _plain,
    "wood": _wood,
    "marble": _marble,
    "tiles": _tiles,
    "stripes": _stripes,
    "checks": _checks,
    "dots": _dots,
}


def paint(pattern: str, first: Colour, second: Colour, number: int) -> Image:
    """(size, size, 3) of the pattern blended from the first colour to the second."""
    blend = PATTERNS[pattern](number)[..., None]
    mixed = (1 - blend) * np.array(first) + blend * np.array(second)
    return np.asarray(np.rint(255 * mixed), np.uint8)
