"""A recorded walk through a room: a look round, a stroll to its far end, a look round there."""

from __future__ import annotations

import numpy as np
from scipy import ndimage

from lookact.envs.rooms.scene import Array, camera_pose
from lookact.envs.rooms.space import FreeSpace, distance_field, shortest_path

LOOKS = 14
"""Frames of a full turn."""
STROLL = 20
"""Frames on the way."""
CAMERA_HEIGHT = 1.4
CAMERA_PITCH = -0.22


def record_walk(space: FreeSpace, rng: np.random.Generator) -> Array:
    """Camera poses (t, 4, 4) from a random free cell to the one farthest from it."""
    room = ndimage.distance_transform_edt(np.pad(space.free, 1))[1:-1, 1:-1]
    # a look round needs distance from walls: corners show nothing
    roomy = room >= min(4.0, room.max())
    rows, cols = np.nonzero(roomy)
    first = int(rng.integers(len(rows)))
    start = space.centre(int(rows[first]), int(cols[first]))
    field = distance_field(space, start[None])
    row, col = np.unravel_index(np.where(roomy & np.isfinite(field), field, -1.0).argmax(), field.shape)
    path = shortest_path(space, field, space.centre(int(row), int(col)))
    places, headings = _stroll(path)
    spin = np.linspace(0.0, 2 * np.pi, LOOKS, endpoint=False)
    # the head turns from side to side on the way, so that both walls are seen
    swing = 0.7 * np.sin(np.linspace(0.0, 4 * np.pi, STROLL))
    xy = np.concatenate([np.repeat(path[:1], LOOKS, axis=0), places, np.repeat(path[-1:], LOOKS, axis=0)])
    yaws = np.concatenate([headings[0] + spin, headings + swing, headings[-1] + spin])
    return _level_poses(xy, yaws)


def _level_poses(xy: Array, yaws: Array) -> Array:
    """Poses (t, 4, 4) at points (t, 2) with yaws (t,): one camera pose, turned about the vertical."""
    poses = np.tile(camera_pose(0.0, 0.0, 0.0, height=CAMERA_HEIGHT, pitch=CAMERA_PITCH), (len(xy), 1, 1))
    turns = np.zeros((len(xy), 3, 3))
    turns[:, 0, 0] = turns[:, 1, 1] = np.cos(yaws)
    turns[:, 1, 0] = np.sin(yaws)
    turns[:, 0, 1] = -turns[:, 1, 0]
    turns[:, 2, 2] = 1.0
    poses[:, :3, :3] = turns @ poses[:, :3, :3]
    poses[:, :2, 3] = xy
    return poses


def _stroll(path: Array) -> tuple[Array, Array]:
    """Evenly spaced points (STROLL, 2) on a path, and the yaw (STROLL,) towards what lies a little ahead."""
    steps = np.linalg.norm(np.diff(path, axis=0), axis=1)
    travelled = np.concatenate([[0.0], np.cumsum(steps)])
    marks = np.linspace(0.0, travelled[-1], STROLL)
    points = [np.stack([np.interp(at, travelled, path[:, axis]) for axis in (0, 1)], axis=1)
              for at in (marks, np.minimum(marks + 0.5, travelled[-1]), np.maximum(marks - 0.2, 0.0))]  # fmt: skip
    ahead = points[1] - points[2]
    return points[0], np.arctan2(ahead[:, 1], ahead[:, 0])
