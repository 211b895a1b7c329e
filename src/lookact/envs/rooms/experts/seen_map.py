"""A floor map drawn from depth pictures as an agent walks: what it has seen, and what stands in the way."""

from __future__ import annotations

import math

import numpy as np
from numpy.typing import NDArray
from scipy import ndimage

from lookact.envs.rooms.grid import ROUNDING, SINGLE_ROUNDING, cells_of
from lookact.envs.rooms.motion import Pose, heading, wrap
from lookact.envs.rooms.obstacles import STEP
from lookact.envs.rooms.places import View
from lookact.envs.rooms.render import Camera, pixel_rays
from lookact.envs.rooms.scene import Array
from lookact.envs.rooms.space import FreeSpace

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


class SeenMap:
    """Grids with rows along Y and columns along X, like `FreeSpace`."""

    def __init__(self, pose: Pose, camera: Camera) -> None:
        self.camera = camera
        self.looks: list[Pose] = []
        side = round(2 * REACH / CELL)
        self.origin: Array = np.array([pose.x, pose.y]) - REACH
        self.seen: Mask = np.zeros((side, side), bool)
        self.solid: Mask = np.zeros((side, side), bool)
        self.stuck: Mask = np.zeros((side, side), bool)
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
        self.looks.append(view.pose)
        return points

    def unlooked(self, pose: Pose) -> int | None:
        """The rotation in degrees towards unseen floor close by, or None if there is none left."""
        for rotation in LOOK_AROUND:
            yaw = wrap(pose.yaw + math.radians(rotation))
            if self._unseen_share(pose, yaw) > UNSEEN_SHARE and not self._looked(pose, yaw):
                return rotation
        return None

    def bump(self, pose: Pose) -> None:
        """Remember that there was no way on from here: what stops a body is broader than the line it walked."""
        x, y = np.mgrid[-0.4:0.41:0.05, -0.4:0.41:0.05].reshape(2, -1)
        ahead = (x > 0.05 + ROUNDING) & (np.hypot(x - 0.2, y) < 0.25 - ROUNDING)
        forward, left = heading(pose.yaw), heading(pose.yaw + np.pi / 2)
        self._mark(self.stuck, np.array([pose.x, pose.y]) + x[ahead, None] * forward + y[ahead, None] * left)

    def space(self, pose: Pose, *, clearance: float) -> FreeSpace:
        """Where the body may go as far as it knows, cut to the part seen: the unseen counts as free."""
        window = self.window()
        solid = self.solid[window]
        free = ndimage.distance_transform_edt(~solid) * CELL >= clearance - ROUNDING if solid.any() else ~solid
        origin = self.origin + np.array([window[1].start, window[0].start]) * CELL
        rows, cols = np.mgrid[: free.shape[0], : free.shape[1]]
        away = np.hypot(origin[0] + (cols + 0.5) * CELL - pose.x, origin[1] + (rows + 0.5) * CELL - pose.y)
        # a body that stands close to something can still leave
        free = (free | (away < FEET)) & ~solid & ~self.stuck[window]
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
        """Seen and open cells of the window that border on a fair amount of unseen floor."""
        window = self.window()
        # thickened by one cell, what was seen has no gaps between the picture's columns
        unseen = ~ndimage.binary_dilation(self.seen[window])
        unseen &= ndimage.uniform_filter(unseen.astype(np.float32), 5) > 0.5
        clear = ~ndimage.binary_dilation(self.solid[window])
        return self.seen[window] & clear & ndimage.binary_dilation(unseen, iterations=2)

    def _looked(self, pose: Pose, yaw: float) -> bool:
        """Whether a view from about here already looked that way."""
        # walks of a metre and turns of half the view are common: their rounding must not decide
        half = math.atan(self.camera.width / 2 / self.camera.fx) - ROUNDING
        near = ANCHOR_METERS - ROUNDING
        return any(
            math.hypot(look.x - pose.x, look.y - pose.y) < near and abs(wrap(look.yaw - yaw)) < half
            for look in self.looks
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
