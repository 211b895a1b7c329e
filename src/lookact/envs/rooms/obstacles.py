"""What stands in an agent's way: distances to walls and boxes, and points of the mesh that no box accounts for."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from lookact.envs.rooms.scene import Array, Box, Scene

Mask = NDArray[np.bool_]

STEP = 0.15
"""Metres above the floor below which nothing is in the way: skirting, carpets, the noise of a scan."""
WALL_DEPTH = 0.12
"""Mesh this close to the floor plan's edge is the wall itself, which the plan already tells."""


def inside_floor(floor: Array, points: Array) -> Mask:
    """Which points (..., 2) lie inside the polygon (k, 2)."""
    x, y = points[..., 0], points[..., 1]
    inside = np.zeros(points.shape[:-1], dtype=bool)
    for (x0, y0), (x1, y1) in _edges(floor):
        if y0 != y1:
            inside ^= ((y0 > y) != (y1 > y)) & (x < x0 + (y - y0) * (x1 - x0) / (y1 - y0))
    return inside


def floor_clearance(floor: Array, points: Array) -> Array:
    """Metres (...) from points (..., 2) to the nearest edge of the floor plan, negative outside it."""
    x, y = np.ascontiguousarray(points[..., 0]), np.ascontiguousarray(points[..., 1])
    nearest = np.full(x.shape, np.inf)
    for (x0, y0), (x1, y1) in _edges(floor):
        along = ((x - x0) * (x1 - x0) + (y - y0) * (y1 - y0)) / max((x1 - x0) ** 2 + (y1 - y0) ** 2, 1e-12)
        np.clip(along, 0.0, 1.0, out=along)
        np.minimum(nearest, (x - x0 - along * (x1 - x0)) ** 2 + (y - y0 - along * (y1 - y0)) ** 2, out=nearest)
    distance: Array = np.sqrt(nearest)
    return np.where(inside_floor(floor, points), distance, -distance)


def _edges(floor: Array) -> list[tuple[list[float], list[float]]]:
    """The polygon's sides as pairs of corners."""
    corners: list[list[float]] = floor.tolist()
    return list(zip(corners, corners[1:] + corners[:1]))


def box_distance(boxes: tuple[Box, ...], points: Array, *, height: float) -> Array:
    """Metres (...) from points (..., 2) to the nearest box an agent of that height would mark_blocked into."""
    nearest = np.full(points.shape[:-1], np.inf)
    for box in boxes:
        bottom, top = vertical_extent(box)
        if top > STEP and bottom < height:
            np.minimum(nearest, footprint_distance(box, points), out=nearest)
    return nearest


def vertical_extent(box: Box) -> tuple[float, float]:
    """The lowest and the highest z of a box."""
    reach = float(np.abs(box.axes[:, 2]) @ box.size) / 2
    return float(box.centroid[2]) - reach, float(box.centroid[2]) + reach


def footprint(box: Box) -> tuple[Array, Array]:
    """The two level axes (2, 2) of a box as unit rows, and its full lengths (2,) along them."""
    level = np.delete(np.arange(3), np.abs(box.axes[:, 2]).argmax())
    axes = box.axes[level, :2]
    return axes / np.linalg.norm(axes, axis=1, keepdims=True), box.size[level]


def footprint_distance(box: Box, points: Array) -> Array:
    """Metres (...) from points (..., 2) to the rectangle a box covers on the floor; 0 inside it."""
    axes, size = footprint(box)
    x, y = points[..., 0] - box.centroid[0], points[..., 1] - box.centroid[1]
    first = np.maximum(np.abs(x * axes[0, 0] + y * axes[0, 1]) - size[0] / 2, 0.0)
    second = np.maximum(np.abs(x * axes[1, 0] + y * axes[1, 1]) - size[1] / 2, 0.0)
    distance: Array = np.sqrt(first * first + second * second)
    return distance


def structure_points(scene: Scene, *, height: float, spacing: float) -> Array:
    """Points (p, 2), no further apart than `spacing`, of faces without a box that are in the way of an agent."""
    corners = scene.vertices[scene.faces[scene.instances < 0]].astype(np.float64)
    low, high = corners[..., 2].min(axis=1), corners[..., 2].max(axis=1)
    corners = corners[(high > STEP) & (low < height)]
    # a face whose three corners lie in one wall is that wall
    clearance = floor_clearance(scene.floor, corners[..., :2])
    corners = corners[(clearance > WALL_DEPTH).any(axis=1)]
    if not len(corners):
        return np.zeros((0, 2))
    edges = np.linalg.norm(corners - np.roll(corners, 1, axis=1), axis=2).max(axis=1)
    parts = np.maximum(1, np.ceil(edges / spacing)).astype(int)
    points = np.concatenate([_sample(corners[parts == count], int(count)) for count in np.unique(parts)])
    points = points[(points[:, 2] > STEP) & (points[:, 2] < height)]
    return points[:, :2]


def _sample(corners: Array, parts: int) -> Array:
    """Points (p, 3) on triangles (m, 3, 3), each edge cut into `parts`."""
    i, j = np.mgrid[: parts + 1, : parts + 1].reshape(2, -1)
    i, j = i[i + j <= parts], j[i + j <= parts]
    weights = np.stack([i, j, parts - i - j], axis=1) / parts
    points: Array = (weights @ corners).reshape(-1, 3)
    return points
