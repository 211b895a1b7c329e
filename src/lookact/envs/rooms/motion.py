"""How a walking camera moves: it turns first, then goes forward until something stands in the way.

A positive rotation turns left (counter-clockwise seen from above).
"""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from lookact.envs.rooms.scene import Array, camera_pose
from lookact.envs.rooms.space import FreeSpace, advance
from lookact.text.actions import MOVE_KEYS, parse_action


@dataclass(frozen=True)
class Pose:
    """Where the camera stands and looks. Yaw 0 looks along +X and grows to the left."""

    x: float
    y: float
    yaw: float
    """Radians in [-pi, pi)."""
    height: float

    def vector(self) -> NDArray[np.float32]:
        """(4,) x, y, yaw, height."""
        return np.array([self.x, self.y, self.yaw, self.height], np.float32)

    def matrix(self) -> Array:
        """(4, 4) camera to world."""
        return camera_pose(self.x, self.y, self.yaw, height=self.height)


@dataclass(frozen=True)
class Limits:
    """The largest move of one turn; anything beyond is clamped, and backward is clamped to standing still."""

    rotation_degrees: float = 180.0
    forward_meters: float = 1.5


@dataclass(frozen=True)
class Move:
    """One turn's motion."""

    rotation_degrees: float
    """Positive is left."""
    forward_meters: float

    def json(self) -> str:
        """As an agent writes it: whole degrees, metres as a decimal."""
        return json.dumps(dict(zip(MOVE_KEYS, (round(self.rotation_degrees), float(self.forward_meters)))))


@dataclass(frozen=True)
class Motion:
    """What came of a move."""

    pose: Pose
    travelled: float
    """Metres really walked."""
    collided: bool


def read_move(action: str | Mapping[str, Any], limits: Limits) -> Move:
    """The move that a reply or a dict asks for, within `limits`. Raises ParseError."""
    keys = parse_action(action if isinstance(action, str) else json.dumps(dict(action), default=float))
    return clamp(keys, limits)


def clamp(keys: Mapping[str, float], limits: Limits) -> Move:
    """A parsed move, cut to `limits`."""
    rotation, forward = (keys[name] for name in MOVE_KEYS)
    return Move(
        min(max(rotation, -limits.rotation_degrees), limits.rotation_degrees),
        min(max(forward, 0.0), limits.forward_meters),
    )


def apply_move(space: FreeSpace, pose: Pose, move: Move) -> Motion:
    """Turn, then walk the straight line as far as it is free."""
    yaw = wrap(pose.yaw + math.radians(move.rotation_degrees))
    start = np.array([pose.x, pose.y])
    end, collided = advance(space, start, start + move.forward_meters * heading(yaw))
    moved = replace(pose, x=float(end[0]), y=float(end[1]), yaw=yaw)
    return Motion(moved, float(np.linalg.norm(end - start)), bool(collided))


def heading(yaw: float) -> Array:
    """(2,) unit vector in the plan."""
    return np.array([math.cos(yaw), math.sin(yaw)])


def bearing_to(pose: Pose, points: Array) -> float:
    """Degrees to the left from the viewing direction to the middle of points (n, 2)."""
    x, y = points.mean(axis=0) - (pose.x, pose.y)
    return math.degrees(wrap(math.atan2(y, x) - pose.yaw))


def wrap(angle: float) -> float:
    """The same angle in [-pi, pi)."""
    return (angle + math.pi) % (2 * math.pi) - math.pi
