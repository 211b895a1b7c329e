"""An occupancy map built from depth images, and planning over it: towards a goal or towards the frontier."""

from __future__ import annotations

import math

import numpy as np
from numpy.typing import NDArray
from scipy import ndimage

from lookact.envs.rooms.motion import Limits, Move, Pose, heading, wrap
from lookact.envs.rooms.obstacles import STEP
from lookact.envs.rooms.render import Camera, pixel_rays
from lookact.envs.rooms.scene import Array
from lookact.envs.rooms.simulator import View
from lookact.envs.rooms.space import ROUNDING, SINGLE_ROUNDING, FreeSpace, cells_of, distance_field

Mask = NDArray[np.bool_]

CELL = 0.1
REACH = 14.0
"""Metres around the start that the map covers."""
BODY_HEIGHT = 1.5
SIGHT = 8.0
FEET = 0.3
LOOK_AROUND = (90, -90, 180)
"""Rotations in degrees, in the order in which they are tried."""
UNSEEN_SHARE = 0.3
ANCHOR_METERS = 1.0
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


class OccupancyMap:
    """Grids with rows along Y and columns along X, like `FreeSpace`."""

    def __init__(self, pose: Pose, camera: Camera) -> None:
        self.camera = camera
        self.poses: list[Pose] = []
        side = round(2 * REACH / CELL)
        self.origin: Array = np.array([pose.x, pose.y]) - REACH
        self.seen: Mask = np.zeros((side, side), bool)
        self.solid: Mask = np.zeros((side, side), bool)
        self.blocked: Mask = np.zeros((side, side), bool)
        """Cells that the body could not enter."""

    def add(self, view: View) -> Array:
        """Draw a view, and return the world points (h, w, 3) of its pixels."""
        points = pixel_points(view, self.camera)
        height, hit = points[..., 2], view.depth > 0
        below = hit & (height < BODY_HEIGHT - SINGLE_ROUNDING)
        solid = below & (height > STEP + SINGLE_ROUNDING)
        self._mark(self.solid, points[solid][:, :2])
        self._mark(self.seen, points[below][:, :2])
        self._mark(self.seen, _open_floor(view, self.camera, solid))
        self.poses.append(view.pose)
        return points

    def unexplored_rotation(self, pose: Pose) -> int | None:
        """The rotation in degrees towards unseen floor close by, or None if there is none left."""
        for rotation in LOOK_AROUND:
            yaw = wrap(pose.yaw + math.radians(rotation))
            if self._unseen_share(pose, yaw) > UNSEEN_SHARE and not self._viewed(pose, yaw):
                return rotation
        return None

    def unviewed_rotation(self, pose: Pose) -> int | None:
        """The rotation in degrees towards where no view from about here has looked, or None after a full circle."""
        turned = ((rotation, wrap(pose.yaw + math.radians(rotation))) for rotation in LOOK_AROUND)
        return next((rotation for rotation, yaw in turned if not self._viewed(pose, yaw)), None)

    def mark_blocked(self, pose: Pose) -> None:
        """Remember that there was no way on from here: what stops a body is broader than the line it walked."""
        x, y = np.mgrid[-0.4:0.41:0.05, -0.4:0.41:0.05].reshape(2, -1)
        ahead = (x > 0.05 + ROUNDING) & (np.hypot(x - 0.2, y) < 0.25 - ROUNDING)
        forward, left = heading(pose.yaw), heading(pose.yaw + np.pi / 2)
        self._mark(self.blocked, np.array([pose.x, pose.y]) + x[ahead, None] * forward + y[ahead, None] * left)

    def space(self, pose: Pose, *, clearance: float) -> FreeSpace:
        """Where the body may go as far as it knows, cut to the part seen: the unseen counts as free."""
        window = self.window()
        solid = self.solid[window]
        free = ndimage.distance_transform_edt(~solid) * CELL >= clearance - ROUNDING if solid.any() else ~solid
        origin = self.origin + np.array([window[1].start, window[0].start]) * CELL
        rows, cols = np.mgrid[: free.shape[0], : free.shape[1]]
        away = np.hypot(origin[0] + (cols + 0.5) * CELL - pose.x, origin[1] + (rows + 0.5) * CELL - pose.y)
        # a body that stands close to something can still leave
        free = (free | (away < FEET)) & ~solid & ~self.blocked[window]
        return FreeSpace(free | (away < CELL), origin, CELL)

    def window(self) -> tuple[slice, slice]:
        """The smallest part of the grids that holds all that was seen, and half a metre around it."""
        rows, cols = (np.flatnonzero(self.seen.any(axis=axis)) for axis in (1, 0))
        margin = round(0.5 / CELL)
        return (
            slice(max(0, rows[0] - margin), rows[-1] + 1 + margin),
            slice(max(0, cols[0] - margin), cols[-1] + 1 + margin),
        )

    def frontier(self) -> Mask:
        """Coverage and open cells of the window that border on a fair amount of unseen floor."""
        window = self.window()
        # thickened by one cell, what was seen has no gaps between the picture's columns
        unseen = ~ndimage.binary_dilation(self.seen[window])
        unseen &= ndimage.uniform_filter(unseen.astype(np.float32), 5) > 0.5
        clear = ~ndimage.binary_dilation(self.solid[window])
        return self.seen[window] & clear & ndimage.binary_dilation(unseen, iterations=2)

    def _viewed(self, pose: Pose, yaw: float) -> bool:
        """Whether a view from about here already looked that way."""
        # walks of a metre and turns of half the view are common: their rounding must not decide
        half = math.atan(self.camera.width / 2 / self.camera.fx) - ROUNDING
        near = ANCHOR_METERS - ROUNDING
        return any(
            math.hypot(past.x - pose.x, past.y - pose.y) < near and abs(wrap(past.yaw - yaw)) < half
            for past in self.poses
        )

    def _unseen_share(self, pose: Pose, yaw: float) -> float:
        """How much of the floor within 1.5 m that way was never seen, as far as no solid thing is in between."""
        yaws = yaw + np.radians(np.arange(-30, 31, 15))
        steps = np.arange(1, 16) * CELL
        rays = np.stack([np.cos(yaws), np.sin(yaws)], axis=-1)[:, None] * steps[:, None]
        cols, rows = np.moveaxis(cells_of(rays + np.array([pose.x, pose.y]), self.origin, CELL), -1, 0)
        clear = np.logical_and.accumulate(~self.solid[rows, cols], axis=1)
        return float((clear & ~self.seen[rows, cols]).mean())

    def _mark(self, grid: Mask, points: Array) -> None:
        cols, rows = cells_of(points, self.origin, CELL, tolerance=SINGLE_ROUNDING).T
        inside = (cols >= 0) & (rows >= 0) & (cols < grid.shape[1]) & (rows < grid.shape[0])
        grid[rows[inside], cols[inside]] = True


def pixel_points(view: View, camera: Camera) -> Array:
    """World points (h, w, 3) of a view's pixels; the camera itself where nothing was hit."""
    pose = view.pose.matrix()
    rays = pixel_rays(camera)[0].reshape(camera.height, camera.width, 3) @ pose[:3, :3].T
    points: Array = pose[:3, 3] + view.depth[..., None] * rays
    return points


def _open_floor(view: View, camera: Camera, solid: Mask) -> Array:
    """Points (n, 2) in front of the nearest solid thing of each picture column, which are open."""
    # the camera is level, so a column of the picture is one direction of the plan
    nearest = np.where(solid, view.depth, np.inf).min(axis=0)
    nearest = np.where(np.isfinite(nearest), nearest, view.depth.max(axis=0))
    ahead, left = heading(view.pose.yaw), heading(view.pose.yaw + np.pi / 2)
    sideways = -(np.arange(camera.width) + 0.5 - camera.cx) / camera.fx
    rays = ahead + sideways[:, None] * left
    steps = np.arange(0.0, SIGHT, CELL / 2)
    column, step = np.nonzero(steps < nearest[:, None] - CELL - SINGLE_ROUNDING)
    points: Array = np.array([view.pose.x, view.pose.y]) + steps[step, None] * rays[column]
    return points


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


def explore(seen: OccupancyMap, pose: Pose, limits: Limits) -> Move:
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
