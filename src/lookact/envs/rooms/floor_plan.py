"""The floor plan of a scan: the outline of what its mesh shows of the floor and of what stands on it.

Cells of 5 cm count where their middle lies below a triangle near the floor, or in the footprint of an object that
stands there, whose floor nobody could scan. Slits are closed, holes are filled, and the outline of the largest region
is told in few corners. Inner corners stay, unlike in a convex hull.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray
from scipy import ndimage
from scipy.spatial import ConvexHull, QhullError

from lookact.envs.rooms.obstacles import footprint_distance, vertical_extent
from lookact.envs.rooms.scene import Array, Box

Mask = NDArray[np.bool_]
CELL = 0.05
LOW = 0.15
"""Metres from the floor within which a surface counts as floor, and a box stands on it."""
SLIT = 0.2
"""Metres of what a scan may miss between two parts of the floor."""
ROUNDING = 1e-6


def floor_plan(vertices: NDArray[np.float32], faces: NDArray[np.int32], boxes: tuple[Box, ...]) -> Array:
    """(k, 2) corners of the floor, counter-clockwise; a convex hull where no surface lies near z = 0."""
    near = np.abs(vertices[:, 2]) < LOW
    triangles = vertices[faces[near[faces].all(axis=1)], :2].astype(np.float64)
    if not len(triangles):
        return floor_hull(vertices)
    origin = triangles.reshape(-1, 2).min(axis=0) - SLIT
    shape = np.ceil((triangles.reshape(-1, 2).max(axis=0) + SLIT - origin) / CELL).astype(int)
    floor = covered_cells(triangles, origin, shape)
    floor |= stood_on(boxes, origin, floor.shape)
    reach = round(SLIT / CELL / 2)
    floor = ndimage.binary_closing(np.pad(floor, reach), np.ones((3, 3), dtype=bool), iterations=reach)[
        reach:-reach, reach:-reach
    ]
    labels, count = ndimage.label(ndimage.binary_fill_holes(floor))
    if not count:
        return floor_hull(vertices)
    largest = labels == 1 + np.argmax(np.bincount(labels.ravel())[1:])
    return simplify(outline(largest) * CELL + origin, 2 * CELL)


def covered_cells(triangles: Array, origin: Array, shape: NDArray[np.int_]) -> Mask:
    """(columns, rows) cells whose middle lies in one of the triangles (m, 3, 2)."""
    scaled = (triangles - origin) / CELL - 0.5
    low = np.ceil(scaled.min(axis=1) - ROUNDING).astype(int)
    counts = np.floor(scaled.max(axis=1) + ROUNDING).astype(int) - low + 1
    cells = np.zeros(tuple(shape), dtype=bool)
    for across, down in np.unique(counts[(counts > 0).all(axis=1)], axis=0):
        chosen = (counts == (across, down)).all(axis=1)
        steps = np.stack(np.meshgrid(np.arange(across), np.arange(down), indexing="ij"), axis=-1).reshape(-1, 2)
        at = low[chosen, None] + steps
        sides = [side_of(scaled[chosen, i, None], scaled[chosen, (i + 1) % 3, None], at) for i in range(3)]
        inside = (np.min(sides, axis=0) >= -ROUNDING) | (np.max(sides, axis=0) <= ROUNDING)
        cells[tuple(at[inside].T)] = True
    return cells


def side_of(start: Array, end: Array, points: Array) -> Array:
    """Above zero for points (..., 2) left of the line from start to end, below for those right of it."""
    (dx, dy), (px, py) = np.moveaxis(end - start, -1, 0), np.moveaxis(points - start, -1, 0)
    found: Array = dx * py - dy * px
    return found


def stood_on(boxes: tuple[Box, ...], origin: Array, shape: tuple[int, ...]) -> Mask:
    """(columns, rows) cells below boxes that stand on the floor."""
    middles = origin + (np.moveaxis(np.indices(shape), 0, -1) + 0.5) * CELL
    cells = np.zeros(shape, dtype=bool)
    for box in boxes:
        if abs(vertical_extent(box)[0]) < LOW:
            cells |= footprint_distance(box, middles) <= 0
    return cells


def outline(cells: Mask) -> Array:
    """(k, 2) corners of the cells' outer edge, counter-clockwise, in cells; of two that touch at a corner the inside
    stays to the left."""
    padded = np.pad(cells, 1)
    ends: dict[tuple[int, int], list[tuple[int, int]]] = {}
    for (dx, dy), first, last in (
        ((0, -1), (0, 0), (1, 0)),
        ((1, 0), (1, 0), (1, 1)),
        ((0, 1), (1, 1), (0, 1)),
        ((-1, 0), (0, 1), (0, 0)),
    ):
        free = ~np.roll(padded, (-dx, -dy), axis=(0, 1))
        for x, y in np.argwhere(padded & free) - 1:
            ends.setdefault((x + first[0], y + first[1]), []).append((x + last[0], y + last[1]))
    start = min(ends)
    path, before = [start], (0, -1)
    while len(path) == 1 or path[-1] != start:
        here = path[-1]
        # at a corner that two cells share the left turn keeps to the cell
        nexts = sorted(ends[here], key=lambda end: -(before[0] * (end[1] - here[1]) - before[1] * (end[0] - here[0])))
        path.append(nexts[0])
        ends[here].remove(nexts[0])
        before = (nexts[0][0] - here[0], nexts[0][1] - here[1])
    return np.array(path[:-1], dtype=np.float64)


def simplify(corners: Array, tolerance: float) -> Array:
    """Fewer corners, none of the others farther than `tolerance` from the sides between them (Douglas and Peucker)."""
    keep = np.zeros(len(corners), dtype=bool)
    far = int(np.argmax(np.linalg.norm(corners - corners[0], axis=1)))
    closed = np.concatenate([corners, corners[:1]])
    spans = [(0, far), (far, len(corners))]
    while spans:
        first, last = spans.pop()
        keep[first] = True
        between = closed[first + 1 : last]
        if len(between):
            line = closed[last] - closed[first]
            offsets = np.abs(side_of(closed[first], closed[last], between)) / max(float(np.hypot(*line)), ROUNDING)
            if offsets.max() > tolerance:
                middle = first + 1 + int(np.argmax(offsets))
                spans += [(first, middle), (middle, last)]
    return corners[keep]


def floor_hull(vertices: NDArray[np.float32]) -> Array:
    """(k, 2) convex hull of what lies within 15 cm of the floor, counter-clockwise."""
    low = vertices[np.abs(vertices[:, 2]) < LOW, :2].astype(np.float64)
    try:
        return low[ConvexHull(low).vertices]
    except (QhullError, ValueError, IndexError):
        if not len(vertices):
            return np.zeros((0, 2))
        (left, near), (right, far) = vertices[:, :2].min(axis=0), vertices[:, :2].max(axis=0)
        return np.array([[left, near], [right, near], [right, far], [left, far]], dtype=np.float64)
