"""What a scanned mesh does not tell and must be inferred: its floor, and which object a face belongs to."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray
from scipy.spatial import ConvexHull, QhullError

from lookact.envs.rooms.ply import Mesh
from lookact.envs.rooms.scene import Array, Box

ROUNDING = 1e-4
"""Metres; a box may fit its object to the bit, and a scan is stored in single precision."""


def floor_height(mesh: Mesh) -> float:
    """The lowest height at which much level surface lies; the lowest percent of vertices where nothing is level."""
    if not len(mesh.faces):
        return float(np.percentile(mesh.vertices[:, 2], 1)) if len(mesh.vertices) else 0.0
    first, second, third = (mesh.vertices[mesh.faces[:, corner]].astype(np.float64) for corner in range(3))
    normals = np.cross(second - first, third - first)
    areas = np.linalg.norm(normals, axis=1)
    level = np.abs(normals[:, 2]) > 0.95 * areas
    heights, weights = ((first + second + third)[level, 2] / 3), areas[level]
    if not len(heights):
        return float(np.percentile(mesh.vertices[:, 2], 1))
    bins = np.floor((heights - heights.min()) / 0.05).astype(int)
    surface = np.bincount(bins, weights)
    lowest = int(np.argmax(surface >= 0.3 * surface.max()))
    near = np.abs(bins - lowest) <= 1
    return float(np.average(heights[near], weights=weights[near]))


def floor_hull(vertices: NDArray[np.float32]) -> Array:
    """(k, 2) convex hull of what lies within 15 cm of the floor, counter-clockwise."""
    low = vertices[np.abs(vertices[:, 2]) < 0.15, :2].astype(np.float64)
    try:
        return low[ConvexHull(low).vertices]
    except (QhullError, ValueError, IndexError):
        if not len(vertices):
            return np.zeros((0, 2))
        (left, near), (right, far) = vertices[:, :2].min(axis=0), vertices[:, :2].max(axis=0)
        return np.array([[left, near], [right, near], [right, far], [left, far]], dtype=np.float64)


def faces_in_boxes(
    vertices: NDArray[np.float32], faces: NDArray[np.int32], boxes: tuple[Box, ...]
) -> NDArray[np.int32]:
    """(m,) the smallest box that holds each face's centroid, or -1."""
    centres = vertices[faces].mean(axis=1).astype(np.float64)
    instances = np.full(len(faces), -1, np.int32)
    # large boxes first, so that the smaller one overwrites
    for index in sorted(range(len(boxes)), key=lambda index: -float(np.prod(boxes[index].size))):
        box = boxes[index]
        inside = (np.abs((centres - box.centroid) @ box.axes.T) <= box.size / 2 + ROUNDING).all(axis=1)
        instances[inside] = index
    return instances
