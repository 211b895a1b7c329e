"""Moves over a map: the best of a small set, towards a goal or towards the unseen."""

from __future__ import annotations

import math

import numpy as np
from numpy.typing import NDArray
from scipy import ndimage

from lookact.envs.rooms.experts.seen_map import CELL, SeenMap
from lookact.envs.rooms.grid import ROUNDING, SINGLE_ROUNDING, cells_of
from lookact.envs.rooms.motion import Limits, Move, Pose
from lookact.envs.rooms.scene import Array
from lookact.envs.rooms.space import FreeSpace, distance_field

TURN_STEP = 15
"""Degrees."""
FORWARD_STEP = 0.25
"""Metres."""
CLEARANCES = (0.3, 0.25, 0.2, 0.15)
"""Metres kept to solid things: as much as leaves a way."""
ASIDE_COST = 0.004
"""Metres that a degree away from the wanted bearing is worth."""
WALK_COST = 0.02
"""Of a metre: among walks that arrive, the shortest."""


def best_move(space: FreeSpace, field: NDArray[np.float32], pose: Pose, limits: Limits, bearing: float) -> Move | None:
    """The move of the quantised set that gets nearest by `field`, rather towards `bearing`; None if all are blocked."""
    rotations = np.arange(-180 + TURN_STEP, 181, TURN_STEP)
    forwards = np.arange(1, math.floor(limits.forward_meters / FORWARD_STEP) + 1) * FORWARD_STEP
    steps = np.arange(1, round(forwards[-1] / CELL * 2) + 1) * CELL / 2
    yaws = pose.yaw + np.radians(rotations)
    rays = np.stack([np.cos(yaws), np.sin(yaws)], axis=-1)[:, None] * steps[:, None]
    cols, rows = np.moveaxis(cells_of(rays + np.array([pose.x, pose.y]), space.origin, CELL), -1, 0)
    inside = (cols >= 0) & (rows >= 0) & (cols < space.free.shape[1]) & (rows < space.free.shape[0])
    cells = np.where(inside, rows, 0), np.where(inside, cols, 0)
    open_way = np.logical_and.accumulate(inside & space.free[cells], axis=1)
    left = np.where(open_way, field[cells], np.inf)[:, np.round(forwards / CELL * 2).astype(int) - 1]
    aside = np.abs((rotations - bearing + 180) % 360 - 180)
    cost = left + ASIDE_COST * aside[:, None] + WALK_COST * forwards
    rotation, forward = np.unravel_index(int(np.argmin(cost)), cost.shape)
    if not np.isfinite(cost[rotation, forward]):
        return None
    return Move(int(rotations[rotation]), float(forwards[forward]))


def explore(seen: SeenMap, pose: Pose, limits: Limits) -> Move:
    """Towards the nearest edge of what has been seen."""
    frontier = seen.frontier()
    for clearance in CLEARANCES:
        space = seen.space(pose, clearance=clearance)
        field = distance_field(space, frontier)
        if np.isfinite(field[space.index(np.array([pose.x, pose.y]))]):
            move = best_move(space, field, pose, limits, 0.0)
            if move is not None:
                return move
    return Move(6 * TURN_STEP, FORWARD_STEP)


def within(space: FreeSpace, points: Array, distance: float) -> NDArray[np.bool_]:
    """Cells within `distance` of that of any of the points (n, 2), which are as exact as a depth picture."""
    away = np.ones(space.free.shape, bool)
    cols, rows = cells_of(points, space.origin, space.cell, tolerance=SINGLE_ROUNDING).T
    away[rows, cols] = False
    near: NDArray[np.bool_] = ndimage.distance_transform_edt(away) * space.cell <= distance + ROUNDING
    return near
