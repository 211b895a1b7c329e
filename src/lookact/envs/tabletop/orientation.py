"""Rotations as MuJoCo writes them."""

from __future__ import annotations

import mujoco
import numpy as np
from numpy.typing import NDArray

Vector = NDArray[np.float64]


def look_at(eye: Vector, point: Vector, up: Vector) -> Vector:
    """The quaternion (4,) of a camera at `eye` with `point` in its middle and `up` upwards in the picture."""
    ahead = (point - eye) / np.linalg.norm(point - eye)
    right = np.cross(ahead, up)
    right /= np.linalg.norm(right)
    # MuJoCo's cameras look along their negative z axis
    matrix = np.stack([right, np.cross(right, ahead), -ahead], axis=1)
    quaternion = np.zeros(4)
    mujoco.mju_mat2Quat(quaternion, matrix.ravel())
    return quaternion


def turned(yaw: float) -> Vector:
    """The quaternion (4,) of a turn about the vertical by `yaw` radians."""
    return np.array([np.cos(yaw / 2), 0.0, 0.0, np.sin(yaw / 2)])


def about_vertical(yaw: float) -> Vector:
    """The matrix (3, 3) of a turn about the vertical by `yaw` radians."""
    c, s = np.cos(yaw), np.sin(yaw)
    return np.array([[c, -s, 0.0], [s, c, 0.0], [0.0, 0.0, 1.0]])


def heading(matrix: Vector) -> float:
    """Radians about the vertical of a body's x axis; its rotation (3, 3) or (9,)."""
    return float(np.arctan2(matrix.flat[3], matrix.flat[0]))


def folded(angle: float, period: float) -> float:
    """The angle in (-period / 2, period / 2] that differs from it by whole periods."""
    return float(period / 2 - (period / 2 - angle) % period)


def rotation_error(wanted: Vector, found: Vector) -> Vector:
    """The rotation vector (3,) that takes the matrix `found` to the matrix `wanted`, both (3, 3), for small angles."""
    turn = wanted @ found.T
    return np.array([turn[2, 1] - turn[1, 2], turn[0, 2] - turn[2, 0], turn[1, 0] - turn[0, 1]]) / 2
