"""Mesh decimation by vertex clustering: rendering small images on a CPU costs as many triangles as there are.

ManiSkill's Panda has 135,000 of them, finer than any image here can show.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray


@dataclass(frozen=True)
class Mesh:
    """Triangles over shared vertices."""

    vertices: NDArray[np.float32]
    """(v, 3)"""
    normals: NDArray[np.float32]
    """(v, 3)"""
    uvs: NDArray[np.float32]
    """(v, 2)"""
    triangles: NDArray[np.uint32]
    """(t, 3)"""


def decimate(mesh: Mesh, cell: float) -> Mesh:
    """Vertices in a cube of side `cell` with like normals become one; degenerate triangles are dropped."""
    cubes = np.floor(mesh.vertices / cell).astype(np.int64)
    cubes -= cubes.min(axis=0)
    _, cube = np.unique(np.ravel_multi_index(tuple(cubes.T), tuple(cubes.max(axis=0) + 1)), return_inverse=True)
    # an edge stays sharp: vertices that face another way keep their own normal, in the same place
    axis = np.abs(mesh.normals).argmax(axis=1)
    facing = 2 * axis + (np.take_along_axis(mesh.normals, axis[:, None], axis=1)[:, 0] > 0)
    _, first, merged = np.unique(6 * cube + facing, return_index=True, return_inverse=True)
    one, two, three = cube[mesh.triangles].T
    kept = (one != two) & (two != three) & (three != one)
    normals = _means(mesh.normals, merged)
    normals /= np.maximum(np.linalg.norm(normals, axis=1, keepdims=True), 1e-9)
    return Mesh(
        _means(mesh.vertices, cube)[cube[first]].astype(np.float32),
        normals.astype(np.float32),
        mesh.uvs[first],
        merged[mesh.triangles][kept].astype(np.uint32),
    )


def rectangle(half: float, tile: float) -> Mesh:
    """A square of half side `half` that faces along x, its texture repeated every `tile` metres."""
    vertices = half * np.array([[0, -1, -1], [0, 1, -1], [0, 1, 1], [0, -1, 1]], np.float32)
    normals = np.tile(np.array([1, 0, 0], np.float32), (4, 1))
    return Mesh(vertices, normals, vertices[:, 1:] / np.float32(tile), np.array([[0, 1, 2], [0, 2, 3]], np.uint32))


def _means(values: NDArray[np.float32], group: NDArray[np.int64]) -> NDArray[np.float64]:
    """Means (g, n) of values (v, n) by group."""
    sums = np.stack([np.bincount(group, column) for column in values.T.astype(np.float64)], axis=1)
    return np.asarray(sums / np.bincount(group)[:, None])
