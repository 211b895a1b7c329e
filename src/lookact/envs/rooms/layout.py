"""Floor plans of empty rooms, and the furniture layout: backs to walls, chairs at tables, nothing in the way."""

from __future__ import annotations

import functools
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from lookact.envs.rooms.furniture import KINDS, Piece
from lookact.envs.rooms.scene import Array

CANDIDATES = 48
FRONT = 0.6
"""Metres kept clear in front of what stands at a wall."""
ISLE = 0.5
"""Metres kept clear round what stands free."""
GAP = 0.025
"""Metres between a wall and what stands at it: the skirting's depth."""
DOOR_WIDTH = 0.86


@dataclass(frozen=True)
class Standing:
    """A piece in its place."""

    piece: Piece
    x: float
    y: float
    yaw: float
    wall: int = -1
    """The wall it stands at, or -1."""
    lift: float = 0.0
    """Metres above the floor."""

    @property
    def rectangle(self) -> Array:
        """(4,) x0 y0 x1 y1 of the upright rectangle round it."""
        half = _half_extent(self.piece, self.yaw)
        return np.array([self.x - half[0], self.y - half[1], self.x + half[0], self.y + half[1]])


def furnish(plan: FloorPlan, pieces: Sequence[Piece], rng: np.random.Generator) -> list[Standing] | None:
    """A place for each piece, the largest at the walls first; None if one finds no place."""
    standing: list[Standing] = []
    zones = [door_zone(plan)]
    for piece in sorted(pieces, key=_turn):
        solids = np.array([*plan.notch, *(other.rectangle for other in standing)]).reshape(-1, 4)
        tables = [other for other in standing if other.piece.label == "table"]
        if KINDS[piece.label].at_wall:
            found = _at_wall(plan, piece, solids, np.array(zones), rng)
        elif piece.label == "chair" and tables:
            found = _at_table(plan, piece, tables, standing, rng) or _anywhere(plan, piece, solids, rng)
        else:
            found = _anywhere(plan, piece, solids, rng)
        if found is None:
            return None
        standing.append(found)
        if found.wall >= 0:
            zones.append(_front_zone(plan, found))
    return standing


def _turn(piece: Piece) -> tuple[bool, bool, float]:
    """Sorts pieces: walls, then tables, then seats; the large before the small."""
    return not KINDS[piece.label].at_wall, piece.label in ("chair", "stool"), -piece.size[0] * piece.size[1]


def _at_wall(plan: FloorPlan, piece: Piece, solids: Array, zones: Array, rng: np.random.Generator) -> Standing | None:
    """The first of many random places with its back to a wall that keeps all fronts clear."""
    width, depth, _ = piece.size
    walls = plan.walls
    lengths = np.array([wall.length for wall in walls])
    draws = rng.random((2, CANDIDATES))
    choice = np.searchsorted(np.cumsum(lengths), draws[0] * lengths.sum()).clip(0, len(walls) - 1)
    play = lengths[choice] - width - 2 * GAP
    along = GAP + width / 2 + draws[1] * play
    directions = np.array([wall.direction for wall in walls])[choice]
    normals = np.stack([-directions[:, 1], directions[:, 0]], axis=1)
    starts = plan.floor[choice]
    centres = starts + directions * along[:, None] + normals * (GAP + depth / 2)
    half = np.abs(directions) * (width / 2 + GAP) + np.abs(normals) * (depth / 2)
    bodies = np.hstack([centres - half, centres + half])
    fronts = centres + normals * ((depth + FRONT) / 2)
    half = np.abs(directions) * (width / 2) + np.abs(normals) * (FRONT / 2)
    fronts = np.hstack([fronts - half, fronts + half])
    good = (play >= 0) & _inside(plan.bounds, fronts) & ~_touch(bodies, zones)
    good &= ~_touch(bodies, solids) & ~_touch(fronts, solids)
    if not good.any():
        return None
    best = int(good.argmax())
    wall = int(choice[best])
    return Standing(piece, float(centres[best, 0]), float(centres[best, 1]), walls[wall].yaw, wall)


def _anywhere(plan: FloorPlan, piece: Piece, solids: Array, rng: np.random.Generator) -> Standing | None:
    """The first of many random places in the open."""
    yaws = np.pi / 2 * rng.integers(4, size=CANDIDATES) + rng.uniform(-0.2, 0.2, size=CANDIDATES)
    half = _half_extent(piece, yaws).T
    low, high = plan.bounds[:2] + half + ISLE, plan.bounds[2:] - half - ISLE
    centres = low + rng.random((CANDIDATES, 2)) * (high - low)
    spread = np.hstack([centres - half - ISLE, centres + half + ISLE])
    good = (high > low).all(axis=1) & ~_touch(spread, solids)
    if not good.any():
        return None
    best = int(good.argmax())
    return Standing(piece, float(centres[best, 0]), float(centres[best, 1]), float(yaws[best]))


def _at_table(
    plan: FloorPlan,
    piece: Piece,
    tables: Sequence[Standing],
    standing: Sequence[Standing],
    rng: np.random.Generator,
) -> Standing | None:
    """A seat at one side of a table, facing it."""
    _, depth, _ = piece.size
    for _ in range(8):
        table = tables[int(rng.integers(len(tables)))]
        side = int(rng.integers(4))
        reach, slack = table.piece.size[1 - side % 2] / 2, table.piece.size[side % 2] / 2 - 0.25
        heading = table.yaw + side * np.pi / 2
        away = np.array([np.sin(heading), -np.cos(heading)])
        across = np.array([np.cos(heading), np.sin(heading)])
        centre = np.array([table.x, table.y]) + away * (reach + depth / 2 + rng.uniform(0.02, 0.12))
        centre += across * rng.uniform(-slack, slack)
        found = Standing(piece, float(centre[0]), float(centre[1]), float(heading))
        others = np.array([*plan.notch, *(other.rectangle for other in standing if other is not table)])
        body = found.rectangle[None] + np.array([-0.1, -0.1, 0.1, 0.1])
        if _inside(plan.bounds, body)[0] and not _touch(body, others.reshape(-1, 4))[0]:
            return found
    return None


def door_zone(plan: FloorPlan) -> Array:
    """(4,) the floor a door needs."""
    wall = plan.walls[plan.door_wall]
    near = wall.start + wall.direction * plan.door_start
    far = near + wall.direction * DOOR_WIDTH + wall.normal * 0.9
    return np.concatenate([np.minimum(near, far), np.maximum(near, far)])


def _front_zone(plan: FloorPlan, standing: Standing) -> Array:
    """(4,) the floor to be kept clear before what stands at a wall."""
    wall = plan.walls[standing.wall]
    width, depth, _ = standing.piece.size
    centre = np.array([standing.x, standing.y]) + wall.normal * ((depth + FRONT) / 2)
    half = np.abs(wall.direction) * (width / 2) + np.abs(wall.normal) * (FRONT / 2)
    return np.concatenate([centre - half, centre + half])


def _half_extent(piece: Piece, yaw: float | Array) -> Array:
    """Half the sides (2, ...) of the upright rectangle round a turned piece."""
    width, depth, _ = piece.size
    cosine, sine = np.abs(np.cos(yaw)), np.abs(np.sin(yaw))
    return np.array([cosine * width + sine * depth, sine * width + cosine * depth]) / 2


def _inside(bounds: Array, rectangles: Array) -> NDArray[np.bool_]:
    """Which rectangles (n, 4) lie within the bounds (4,)."""
    low, high = rectangles[:, :2] >= bounds[:2], rectangles[:, 2:] <= bounds[2:]
    inside: NDArray[np.bool_] = np.all(low & high, axis=1)
    return inside


def _touch(rectangles: Array, others: Array) -> NDArray[np.bool_]:
    """Which rectangles (n, 4) overlap any of the others (k, 4)."""
    low = np.maximum(rectangles[:, None, :2], others[None, :, :2])
    high = np.minimum(rectangles[:, None, 2:], others[None, :, 2:])
    touch: NDArray[np.bool_] = np.any(np.all(high > low, axis=2), axis=1)
    return touch


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
class FloorPlan:
    """An empty room round the origin: a rectangle of which corners may be cut out."""

    floor: Array
    """(k, 2) corners, counter-clockwise."""
    notch: Array
    """(n, 4) the corners that are cut out, each as x0 y0 x1 y1; an L has one."""
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


def sample_floor_plan(rng: np.random.Generator, *, side: tuple[float, float], shape: str) -> FloorPlan:
    """A room of the shape ("rectangle" or "L") with sides in the range and a door in one of its walls."""
    half = rng.uniform(*side, size=2) / 2
    corners = half * np.array([[-1, -1], [1, -1], [1, 1], [-1, 1]])
    notch = np.zeros((0, 4))
    if shape == "L":
        corners, notch = cut_corner(corners, int(rng.integers(4)), rng.uniform(0.3, 0.5, size=2) * 2 * half)
    lengths = np.abs(np.roll(corners, -1, axis=0) - corners).sum(axis=1)
    wide = np.flatnonzero(lengths > DOOR_WIDTH + 0.5)
    wall = int(wide[rng.integers(len(wide))])
    start = float(rng.uniform(0.2, lengths[wall] - DOOR_WIDTH - 0.2))
    return FloorPlan(corners, notch, float(rng.uniform(2.4, 2.8)), wall, start)


def cut_corner(corners: Array, corner: int, cut: Array) -> tuple[Array, Array]:
    """A rectangle's corners (k, 2) with one cut out by (x, y): the corners (k + 2, 2), the notch (1, 4).

    Several are cut out from the last corner to the first.
    """
    point = corners[corner]
    before = np.sign(corners[corner - 1] - point) * cut
    after = np.sign(corners[(corner + 1) % len(corners)] - point) * cut
    inner = np.array([point + before, point + before + after, point + after])
    shape = np.concatenate([corners[:corner], inner, corners[corner + 1 :]])
    far = point + before + after
    return shape, np.concatenate([np.minimum(point, far), np.maximum(point, far)])[None]
