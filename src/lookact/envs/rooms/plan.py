"""The plan of an empty room: its outline, its walls and its door."""

from __future__ import annotations

import functools
from dataclasses import dataclass

import numpy as np

from lookact.envs.rooms.scene import Array

DOOR_WIDTH = 0.86


@dataclass(frozen=True)
class Wall:
    """A straight wall; inside the room is to the left of its direction."""

    start: Array
    """(2,)"""
    direction: Array
    """(2,) unit, along the X or the Y axis."""
    length: float

    @property
    def normal(self) -> Array:
        """(2,) into the room."""
        return np.array([-self.direction[1], self.direction[0]])

    @property
    def yaw(self) -> float:
        """The turn of a frame whose x runs along the wall and whose y points into the room."""
        return float(np.arctan2(self.direction[1], self.direction[0]))


@dataclass(frozen=True)
class Plan:
    """An empty room, a rectangle or an L, centred on the origin."""

    floor: Array
    """(k, 2) corners, counter-clockwise."""
    notch: Array
    """(0 or 1, 4) the corner cut out of an L as x0 y0 x1 y1."""
    height: float
    door_wall: int
    door_start: float
    """Metres from the wall's start to the door's near edge."""

    @property
    def bounds(self) -> Array:
        """(4,) x0 y0 x1 y1."""
        return np.concatenate([self.floor.min(axis=0), self.floor.max(axis=0)])

    @functools.cached_property
    def walls(self) -> tuple[Wall, ...]:
        """One for each edge of the floor, in order."""
        edges = np.roll(self.floor, -1, axis=0) - self.floor
        lengths = np.abs(edges).sum(axis=1)
        return tuple(
            Wall(start, edge / length, float(length)) for start, edge, length in zip(self.floor, edges, lengths)
        )


def draw_plan(rng: np.random.Generator, *, side: tuple[float, float], shape: str) -> Plan:
    """A room of the shape ("rectangle" or "L") with sides in the range and a door in one of its walls."""
    half = rng.uniform(*side, size=2) / 2
    corners = half * np.array([[-1, -1], [1, -1], [1, 1], [-1, 1]])
    notch = np.zeros((0, 4))
    if shape == "L":
        corners, notch = _cut_corner(corners, int(rng.integers(4)), rng.uniform(0.3, 0.5, size=2) * 2 * half)
    lengths = np.abs(np.roll(corners, -1, axis=0) - corners).sum(axis=1)
    wide = np.flatnonzero(lengths > DOOR_WIDTH + 0.5)
    wall = int(wide[rng.integers(len(wide))])
    start = float(rng.uniform(0.2, lengths[wall] - DOOR_WIDTH - 0.2))
    return Plan(corners, notch, float(rng.uniform(2.4, 2.8)), wall, start)


def _cut_corner(corners: Array, corner: int, cut: Array) -> tuple[Array, Array]:
    """A rectangle's corners (4, 2) with one corner cut out by (x, y): the L's corners (6, 2), the notch (1, 4)."""
    point = corners[corner]
    before = np.sign(corners[corner - 1] - point) * cut
    after = np.sign(corners[(corner + 1) % 4] - point) * cut
    inner = np.array([point + before, point + before + after, point + after])
    shape = np.concatenate([corners[:corner], inner, corners[corner + 1 :]])
    far = point + before + after
    return shape, np.concatenate([np.minimum(point, far), np.maximum(point, far)])[None]
