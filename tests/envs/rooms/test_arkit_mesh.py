"""Floors and objects inferred from scans."""

import numpy as np
import pytest

from lookact.envs.rooms.arkit_mesh import faces_in_boxes, floor_height, floor_hull
from lookact.envs.rooms.ply import Mesh
from lookact.envs.rooms.scene import Box


def sheet(width: float, depth: float, height: float, *, noise: float = 0.0, cells: int = 12) -> tuple:
    """A level, slightly uneven patch of triangles: vertices (n, 3), faces (m, 3)."""
    x, y = np.meshgrid(np.linspace(0, width, cells + 1), np.linspace(0, depth, cells + 1))
    z = height + np.random.default_rng(0).uniform(-noise, noise, x.size)
    corner = (np.arange(cells)[:, None] * (cells + 1) + np.arange(cells)).ravel()
    lower = np.stack([corner, corner + 1, corner + cells + 2], axis=1)
    upper = np.stack([corner, corner + cells + 2, corner + cells + 1], axis=1)
    return np.column_stack([x.ravel(), y.ravel(), z]), np.concatenate([lower, upper])


def mesh_of(*sheets: tuple) -> Mesh:
    vertices = np.concatenate([part[0] for part in sheets]).astype(np.float32)
    starts = np.cumsum([0, *(len(part[0]) for part in sheets[:-1])])
    faces = np.concatenate([part[1] + start for part, start in zip(sheets, starts)]).astype(np.int32)
    return Mesh(vertices, faces, np.zeros((len(vertices), 3), np.uint8))


def test_the_floor_is_the_lowest_large_level_surface() -> None:
    room = mesh_of(
        sheet(4, 3, -1.3, noise=0.01), sheet(4, 3, 1.2, noise=0.01), sheet(2, 1, -0.6), sheet(0.3, 0.3, -2.0)
    )
    assert floor_height(room) == pytest.approx(-1.3, abs=0.01)


def test_a_floor_half_hidden_by_furniture_is_still_the_floor() -> None:
    assert floor_height(mesh_of(sheet(4, 1.2, 0.4), sheet(4, 3, 1.1))) == pytest.approx(0.4, abs=1e-6)


def test_meshes_without_level_parts_fall_back_to_their_lowest_points() -> None:
    corners = np.array([[0, 0, 1], [1, 0, 1], [1, 0, 3]], np.float32)
    wall = Mesh(corners, np.array([[0, 1, 2]], np.int32), np.zeros((3, 3), np.uint8))
    assert floor_height(wall) == pytest.approx(1.0)
    empty = Mesh(np.zeros((0, 3), np.float32), np.zeros((0, 3), np.int32), np.zeros((0, 3), np.uint8))
    assert floor_height(empty) == 0.0
    assert floor_hull(empty.vertices).shape == (0, 2)


def test_the_hull_runs_counter_clockwise_around_the_floor_only() -> None:
    vertices = np.concatenate([sheet(4, 3, 0.0)[0], sheet(9, 9, 2.0)[0]]).astype(np.float32)
    x, y = floor_hull(vertices).T
    assert (x @ np.roll(y, -1) - y @ np.roll(x, -1)) / 2 == pytest.approx(12.0)
    # nothing near the floor: the rectangle around all there is
    assert floor_hull(vertices + np.float32(1)).tolist() == [[1, 1], [10, 1], [10, 10], [1, 10]]


def test_a_face_outside_all_boxes_belongs_to_none() -> None:
    vertices, faces = sheet(4, 1, 0.0, cells=4)
    box = Box("b", "bed", np.array([0.5, 0.5, 0.0]), np.array([1.0, 1.0, 0.1]), np.eye(3))
    found = faces_in_boxes(vertices.astype(np.float32), faces.astype(np.int32), (box,))
    centres = vertices[faces].mean(axis=1)
    assert found.tolist() == [0 if x < 1 else -1 for x in centres[:, 0]]
