"""Free space as a floor grid, and geodesic distances on it.

Kinds of CPU differ in the last digits of a sine, a product or a depth. What stands on the edge of a cell, or as far off
as a limit says, must not be decided by them: within a tolerance it counts as on the edge, and the edge's rule holds.
"""

from __future__ import annotations

import functools
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy import ndimage
from scipy.sparse import csr_array
from scipy.sparse.csgraph import dijkstra

from lookact.envs.rooms.obstacles import box_distance, floor_clearance, structure_points
from lookact.envs.rooms.scene import Array, Scene
from lookact.errors import DataError

Mask = NDArray[np.bool_]
Floats = NDArray[np.float32]

# the 16 neighbours as (row, col), each with the cells that must be free for a straight move there
_QUARTER: tuple[tuple[tuple[int, int], ...], ...] = (
    ((0, 1),),
    ((1, 1), (0, 1), (1, 0)),
    ((1, 2), (0, 1), (1, 1)),
    ((2, 1), (1, 0), (1, 1)),
)
MOVES = tuple(
    tuple((row * a + col * b, col * a - row * b) for row, col in cells)
    for a, b in ((1, 0), (0, 1), (-1, 0), (0, -1))
    for cells in _QUARTER
)
REACH = 2
BACK_OFF = 1e-4
ROUNDING = 1e-9
"""Metres (or degrees) that double precision may be off by: thousands of times its last digit, far below any distance
that matters."""
SINGLE_ROUNDING = 1e-5
"""Metres that a depth picture or a mesh may be off by: single precision has steps of a micrometre at ten metres."""


@dataclass(frozen=True)
class FreeSpace:
    """Cells of the floor where an agent's centre may be. Rows run along Y, columns along X."""

    free: Mask
    """(rows, cols)"""
    origin: Array
    """(2,) the outer corner of cell (0, 0)."""
    cell: float
    """The side of a cell in metres."""

    def index(self, xy: Array) -> tuple[int, int]:
        """The (row, col) of the cell around a point, which may lie off the grid."""
        column, row = cells_of(np.asarray(xy), self.origin, self.cell)
        return int(row), int(column)

    def centre(self, row: int, col: int) -> Array:
        """(2,) the middle of a cell."""
        centre: Array = self.origin + (np.array([col, row]) + 0.5) * self.cell
        return centre

    def contains(self, xy: Array) -> bool:
        """Whether the point lies in a free cell."""
        row, col = self.index(xy)
        rows, cols = self.free.shape
        return 0 <= row < rows and 0 <= col < cols and bool(self.free[row, col])

    @functools.cached_property
    def graph(self) -> csr_array:
        """Lengths of the straight moves between cells, up to 16 each; cells are numbered row by row."""
        rows, cols = self.free.shape
        padded = np.pad(self.free, REACH)
        shifted = {
            (row, col): padded[REACH + row : REACH + row + rows, REACH + col : REACH + col + cols]
            for row in range(-REACH, REACH + 1)
            for col in range(-REACH, REACH + 1)
        }
        valid = np.empty((rows, cols, len(MOVES)), dtype=bool)
        for number, cells in enumerate(MOVES):
            open_cells = self.free & shifted[cells[0]]
            for between in cells[1:]:
                open_cells &= shifted[between]
            valid[..., number] = open_cells
        flat = valid.reshape(-1, len(MOVES))
        node, move = np.nonzero(flat)
        jumps = np.array([row * cols + col for (row, col), *_ in MOVES])
        lengths = np.array([self.cell * np.hypot(row, col) for (row, col), *_ in MOVES])
        starts = np.concatenate([[0], np.cumsum(flat.sum(axis=1))])
        return csr_array((lengths[move], node + jumps[move], starts), shape=(len(flat), len(flat)))


def free_space(scene: Scene, *, radius: float = 0.2, height: float = 1.5, cell: float = 0.1) -> FreeSpace:
    """Cells where an upright agent of that radius and height touches neither wall nor object.

    A thing that is just `radius` away is not touched. Pockets cut off from the largest region are not free.
    """
    if len(scene.floor) < 3:
        raise DataError(f"scene {scene.id} has no floor plan: give `floor` at least three corners")
    low, high = scene.floor.min(axis=0), scene.floor.max(axis=0)
    cols, rows = np.maximum(1, np.ceil((high - low) / cell - 1e-9)).astype(int)
    y, x = np.mgrid[:rows, :cols] + 0.5
    centres = low + np.stack([x, y], axis=-1) * cell
    free = floor_clearance(scene.floor, centres) >= radius - ROUNDING
    free &= box_distance(scene.boxes, centres, height=height) >= radius - ROUNDING
    points = structure_points(scene, height=height, spacing=cell / 2)
    if len(points):
        free &= ~_near_points(points, low, (int(rows), int(cols)), radius=radius, cell=cell)
    return FreeSpace(_largest_region(free), low.astype(np.float64), cell)


def _near_points(points: Array, origin: Array, shape: tuple[int, int], *, radius: float, cell: float) -> Mask:
    """Cells whose centre is within `radius` of the centre of a cell that holds a point; an edge is held by both."""
    empty = np.ones(shape, dtype=bool)
    sides = (SINGLE_ROUNDING, -SINGLE_ROUNDING)
    index = np.concatenate([cells_of(points, origin, cell, tolerance=side) for side in sides])
    index = index[(index >= 0).all(axis=1) & (index < shape[::-1]).all(axis=1)]
    empty[index[:, 1], index[:, 0]] = False
    near: Mask = ndimage.distance_transform_edt(empty) * cell < radius - ROUNDING
    return near if not empty.all() else np.zeros(shape, dtype=bool)


def _largest_region(free: Mask) -> Mask:
    """The largest 4-connected region of a mask."""
    regions, count = ndimage.label(free)
    if count < 2:
        return free
    sizes = np.bincount(regions.ravel())
    sizes[0] = 0
    largest: Mask = regions == sizes.argmax()
    return largest


def distance_field(space: FreeSpace, goals: Array | Mask) -> Floats:
    """Walking distance in metres from each cell to the nearest goal: (rows, cols), inf where there is no way.

    Goals are points (k, 2) or a mask (rows, cols); those off the free cells do not count.
    """
    sources = np.flatnonzero(_goal_cells(space, np.asarray(goals)))
    if not len(sources):
        return np.full(space.free.shape, np.inf, dtype=np.float32)
    field = dijkstra(space.graph, indices=sources, min_only=True)
    return field.reshape(space.free.shape).astype(np.float32)


def _goal_cells(space: FreeSpace, goals: NDArray[Any]) -> Mask:
    """The free cells (rows, cols) among goals given as a mask or as points."""
    mask = np.zeros(space.free.shape, dtype=bool)
    if goals.dtype == np.bool_:
        mask |= goals & space.free
        return mask
    for xy in goals.reshape(-1, 2):
        if space.contains(xy):
            mask[space.index(xy)] = True
    return mask


def shortest_path(space: FreeSpace, field: Floats, start_xy: Array) -> Array:
    """Points (k, 2) from the start down the field to a goal, through cell centres; (0, 2) if there is no way."""
    if not space.contains(start_xy) or not np.isfinite(field[space.index(start_xy)]):
        return np.zeros((0, 2))
    flat, graph, cols = field.ravel(), space.graph, field.shape[1]
    row, col = space.index(start_xy)
    node = row * cols + col
    points = [np.asarray(start_xy, dtype=np.float64), space.centre(row, col)]
    while flat[node] > 0:
        row_of_graph = slice(graph.indptr[node], graph.indptr[node + 1])
        neighbours = graph.indices[row_of_graph]
        # only downhill, so that rounding can't turn the walk in circles
        costs = np.where(flat[neighbours] < flat[node], flat[neighbours] + graph.data[row_of_graph], np.inf)
        node = int(neighbours[costs.argmin()])
        points.append(space.centre(node // cols, node % cols))
    return np.stack(points)


def advance(space: FreeSpace, start_xy: Array, end_xy: Array) -> tuple[Array, bool]:
    """Straight motion, stopped just before the first blocked cell: the point reached, and whether it was stopped.

    From a cell that is not free there is no motion.
    """
    start, end = np.asarray(start_xy, dtype=np.float64), np.asarray(end_xy, dtype=np.float64)
    cuts = np.concatenate([[0.0], _crossings(space, start, end), [1.0, 1.0]])
    middles = start + ((cuts[:-1] + cuts[1:]) / 2)[:, None] * (end - start)
    free = [space.contains(xy) for xy in middles]
    if all(free):
        return end, False
    first = free.index(False)
    length = float(np.linalg.norm(end - start))
    reach = max(0.0, cuts[first] - BACK_OFF / max(length, BACK_OFF))
    reached = start + reach * (end - start)
    if first and not space.contains(reached):
        # so flat against the edge that the step back did not leave it
        return middles[first - 1], True
    return reached, True


def _crossings(space: FreeSpace, start: Array, end: Array) -> Array:
    """Sorted parameters in (0, 1) where the segment from start to end crosses a line of the grid."""
    first, last = (start - space.origin) / space.cell, (end - space.origin) / space.cell
    crossings = []
    for a, b in zip(first, last):
        lines = np.arange(np.floor(min(a, b)) + 1, np.ceil(max(a, b)))
        crossings.append((lines - a) / (b - a) if a != b else lines[:0])
    return np.sort(np.concatenate(crossings))


def cells_of(points: Array, origin: Array, cell: float, *, tolerance: float = ROUNDING) -> NDArray[np.intp]:
    """(..., 2) column and row of the cells around points (..., 2), which may lie off the grid.

    A cell holds its lower edges: a point less than `tolerance` short of an edge stands on it.
    """
    return np.floor((points - origin + tolerance) / cell).astype(np.intp)
