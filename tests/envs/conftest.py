"""Rooms put together by hand, so that distances can be worked out on paper."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest

from lookact.envs.rooms.render import Renderer
from lookact.envs.rooms.scene import Box, Scene
from lookact.envs.rooms.simulator import Simulator
from lookact.envs.rooms.space import free_space

CUBE = np.array([[x, y, z] for x in (0, 1) for y in (0, 1) for z in (0, 1)], float)
SIDES = ((0, 1, 3, 2), (4, 5, 7, 6), (0, 1, 5, 4), (2, 3, 7, 6), (0, 2, 6, 4), (1, 3, 7, 5))
MakePlace = Callable[..., Simulator]


def build_place(width: float, depth: float, objects: dict[str, tuple[float, float, float, float, float]]) -> Simulator:
    """A bare room from (0, 0) to (width, depth) with boxes given as label: (x, y, width, depth, height) of a corner."""
    shells = [(np.zeros(3), np.array([width, depth, 2.5]), -1)]
    boxes = []
    for index, (label, (x, y, *size)) in enumerate(objects.items()):
        low, size = np.array([x, y, 0.0]), np.array(size)
        shells.append((low, size, index))
        boxes.append(Box(f"{index}", label, low + size / 2, size, np.eye(3)))
    vertices, faces, instances = [], [], []
    for low, size, index in shells:
        for a, b, c, d in SIDES:
            offset = sum(map(len, vertices)) + np.array([[0, 0, 0], [0, 0, 0]])
            faces.append(np.array([[a, b, c], [a, c, d]]) + offset)
            instances += [index, index]
        vertices.append(low + CUBE * size)
    floor = np.array([[0.0, 0.0], [width, 0.0], [width, depth], [0.0, depth]])
    scene = Scene(
        "by-hand",
        np.concatenate(vertices).astype(np.float32),
        np.concatenate(faces).astype(np.int32),
        np.full((8 * len(shells), 3), 128, np.uint8),
        np.array(instances, np.int32),
        tuple(boxes),
        floor,
        np.zeros((0, 4, 4)),
    )
    return Simulator(scene, Renderer(scene), free_space(scene))


@pytest.fixture
def make_place() -> MakePlace:
    return build_place
