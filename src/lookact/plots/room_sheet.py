"""A contact sheet of rooms: each row is a room's map and what a camera sees along its recorded walk."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from lookact.envs.rooms.maps import PAPER, draw_map
from lookact.envs.rooms.render import Camera, Renderer
from lookact.envs.rooms.scene import Array, Scene, camera_pose
from lookact.types import Image

VIEWS, TILE, GAP = 4, 240, 8
EYE_HEIGHT = 1.4


def draw_rooms(scenes: Sequence[Scene]) -> Image:
    """A (h, w, 3) sheet with one row a scene."""
    return grid([[draw_map(scene, size=TILE), *look_around(scene)] for scene in scenes])


def look_around(scene: Scene) -> list[Image]:
    """A few views spread over the recorded walk, or all around from the middle where there is none."""
    walk = scene.trajectory
    poses = walk[np.arange(VIEWS) * len(walk) // VIEWS] if len(walk) else _turn_around(scene)
    return list(Renderer(scene).render(poses, Camera.square(TILE)).rgb)


def grid(rows: Sequence[Sequence[Image]]) -> Image:
    """Square tiles of one size side by side, with gaps."""
    step = TILE + GAP
    columns = max(len(row) for row in rows)
    sheet = np.empty((len(rows) * step + GAP, columns * step + GAP, 3), dtype=np.uint8)
    sheet[:] = PAPER
    for y, row in enumerate(rows):
        for x, tile in enumerate(row):
            sheet[GAP + y * step :, GAP + x * step :][:TILE, :TILE] = tile
    return sheet


def _turn_around(scene: Scene) -> Array:
    x, y = scene.floor.mean(axis=0)
    yaws = np.arange(VIEWS) * 2 * np.pi / VIEWS
    return np.stack([camera_pose(x, y, yaw, height=EYE_HEIGHT) for yaw in yaws])
