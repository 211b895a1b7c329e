"""Colour, depth and object ids of a room, by casting rays with embree: no GL, no display.

Ray directions keep z = 1 in the camera's frame, so that the distance embree returns is the depth along the
viewing axis as it stands.
"""

from __future__ import annotations

import functools
import math
from dataclasses import dataclass

import numpy as np
from embreex.mesh_construction import TriangleMesh
from embreex.rtcore_scene import EmbreeScene
from numpy.typing import NDArray

from lookact.envs.rooms.scene import Array, Scene

Floats = NDArray[np.float32]

NOTHING = -2
SKY = np.array([0.33, 0.17, 0.93])
"""Where the fixed soft light comes from: the four walls of a room take four tints from it."""
BACKGROUND = (38.0, 42.0, 52.0)
# so many rays at once that the arrays of one batch stay in the cache
BATCH_RAYS = 1 << 15


@dataclass(frozen=True)
class Camera:
    """A pinhole camera in pixels."""

    width: int
    height: int
    fx: float
    fy: float
    cx: float
    cy: float

    @classmethod
    def square(cls, size: int, fov_degrees: float = 90.0) -> Camera:
        """A square image with the same field of view both ways."""
        focal = size / 2 / math.tan(math.radians(fov_degrees) / 2)
        return cls(size, size, focal, focal, size / 2, size / 2)


@dataclass(frozen=True)
class Frames:
    """What n cameras see."""

    rgb: NDArray[np.uint8]
    """(n, h, w, 3)"""
    depth: Floats
    """(n, h, w) metres along the viewing axis, 0 where nothing is hit."""
    instance: NDArray[np.int32]
    """(n, h, w) index into `scene.boxes`, -1 for walls and the like, -2 for nothing."""


class Renderer:
    """Renders one scene from any number of cameras; the ray tree is built at the first frame."""

    def __init__(self, scene: Scene) -> None:
        self._tree = EmbreeScene(robust=True)
        self._mesh = TriangleMesh(self._tree, scene.vertices.astype(np.float32), scene.faces.astype(np.int32))
        normals = face_normals(scene.vertices[scene.faces])
        shade = 0.9 + 0.1 * (normals @ SKY)
        colors = scene.colors[scene.faces].mean(axis=1, dtype=np.float32) * shade[:, None]
        # one row more at the end: embree's id for "nothing hit" is -1
        self._normals = np.vstack([normals, np.zeros(3)]).astype(np.float32)
        self._colors = np.vstack([colors, BACKGROUND]).astype(np.float32)
        self._instances = np.append(scene.instances, NOTHING).astype(np.int32)

    def cast(self, origins: Floats, directions: Floats) -> tuple[NDArray[np.int32], Floats]:
        """The face each ray hits, -1 for none, and how many `directions` away: (n, 3), (n, 3) -> (n,), (n,)."""
        hits = self._tree.run(origins, directions, output=True)
        return hits["primID"], hits["tfar"]

    def render(self, poses: Array, camera: Camera) -> Frames:
        """Frames from camera-to-world poses (n, 4, 4)."""
        views: Floats = np.asarray(poses, dtype=np.float32).reshape(-1, 4, 4)
        shape = (len(views), camera.height, camera.width)
        frames = Frames(np.empty((*shape, 3), np.uint8), np.empty(shape, np.float32), np.empty(shape, np.int32))
        step = max(1, BATCH_RAYS // (camera.height * camera.width))
        for start in range(0, len(views), step):
            part = slice(start, start + step)
            self._render_batch(views[part], camera, frames.rgb[part], frames.depth[part], frames.instance[part])
        return frames

    def look_down(self, points: Array, top: float) -> NDArray[np.uint8]:
        """Colours (n, 3) of what lies under the points (n, 2), seen straight down from the height `top`."""
        origins = np.column_stack([points, np.full(len(points), top)]).astype(np.float32)
        faces, _ = self.cast(origins, np.array([[0.0, 0.0, -1.0]], dtype=np.float32))
        light = 0.75 + 0.25 * np.abs(self._normals[faces, 2:])
        colors: NDArray[np.uint8] = (self._colors[faces] * light).astype(np.uint8)
        return colors

    def _render_batch(
        self, poses: Floats, camera: Camera, rgb: NDArray[np.uint8], depth: Floats, instance: NDArray[np.int32]
    ) -> None:
        """Fills the views `rgb`, `depth` and `instance` with the frames of a few poses."""
        rays, inverse_lengths = pixel_rays(camera)
        directions = np.matmul(rays, poses[:, :3, :3].transpose(0, 2, 1)).reshape(-1, 3)
        origins = np.repeat(poses[:, :3, 3], len(rays), axis=0)
        faces, distances = self.cast(origins, directions)
        distances[faces < 0] = 0.0
        facing = np.abs(np.einsum("ij,ij->i", self._normals.take(faces, axis=0), directions))
        light = headlight(facing.reshape(len(poses), -1) * inverse_lengths, distances.reshape(len(poses), -1))
        rgb[...] = (self._colors.take(faces, axis=0) * light.reshape(-1, 1)).reshape(rgb.shape)
        depth[...] = distances.reshape(depth.shape)
        instance[...] = self._instances.take(faces).reshape(instance.shape)


def headlight(facing: Floats, distance: Floats) -> Floats:
    """Brightness in (0, 1] of surfaces lit from the camera, `facing` it by a cosine and `distance` metres away."""
    light: Floats = (0.74 + 0.26 * facing) / (1.0 + 0.004 * distance * distance)
    return light


def face_normals(corners: NDArray[np.floating]) -> Array:
    """Unit normals (m, 3) of triangles (m, 3, 3); zero where a triangle has no area."""
    corners = corners.astype(np.float64)
    normals = np.cross(corners[:, 1] - corners[:, 0], corners[:, 2] - corners[:, 0])
    lengths = np.linalg.norm(normals, axis=1, keepdims=True)
    return normals / np.where(lengths > 0, lengths, 1.0)


@functools.lru_cache(maxsize=16)
def pixel_rays(camera: Camera) -> tuple[Floats, Floats]:
    """Directions (h*w, 3) through the pixel centres with z = 1 in the camera's frame, and 1 / length (h*w,)."""
    y, x = np.mgrid[: camera.height, : camera.width].reshape(2, -1) + 0.5
    rays = np.stack([(x - camera.cx) / camera.fx, (y - camera.cy) / camera.fy, np.ones_like(x)], axis=1)
    return rays.astype(np.float32), (1.0 / np.linalg.norm(rays, axis=1)).astype(np.float32)
