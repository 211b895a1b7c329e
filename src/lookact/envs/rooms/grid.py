"""Cells of a floor grid, and how close to an edge is on it.

Kinds of CPU differ in the last digits of a sine, a product or a depth. What stands on the edge of a cell, or as far off
as a limit says, must not be decided by them: within a tolerance it counts as on the edge, and the edge's rule holds.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from lookact.envs.rooms.scene import Array

ROUNDING = 1e-9
"""Metres (or degrees) that double precision may be off by: thousands of times its last digit, far below any distance
that matters."""
SINGLE_ROUNDING = 1e-5
"""Metres that a depth picture or a mesh may be off by: single precision has steps of a micrometre at ten metres."""


def cells_of(points: Array, origin: Array, cell: float, *, tolerance: float = ROUNDING) -> NDArray[np.intp]:
    """(..., 2) column and row of the cells around points (..., 2), which may lie off the grid.

    A cell holds its lower edges: a point less than `tolerance` short of an edge stands on it.
    """
    return np.floor((points - origin + tolerance) / cell).astype(np.intp)
