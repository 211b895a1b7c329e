"""A room: coloured triangles, labelled boxes, a floor plan and the camera that walked through it.

World frame: metres, Z up, the floor at z = 0. Camera frame: X right, Y down, Z forward.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

Array = NDArray[np.float64]

CLASSES = (
    "cabinet", "refrigerator", "shelf", "stove", "bed", "sink", "washer", "toilet", "bathtub",
    "oven", "dishwasher", "fireplace", "stool", "chair", "table", "tv_monitor", "sofa",
)  # fmt: skip
"""The 17 object classes of ARKitScenes."""


@dataclass(frozen=True)
class Box:
    """An object's oriented box, as ARKitScenes annotates it."""

    uid: str
    label: str
    centroid: Array
    """(3,)"""
    size: Array
    """(3,) full lengths along the box's own axes."""
    axes: Array
    """(3, 3) rows are the box's axes in the world: corners = axes.T @ (±size / 2) + centroid."""

    def corners(self) -> Array:
        """(8, 3) in the world."""
        signs = np.array([[x, y, z] for x in (-0.5, 0.5) for y in (-0.5, 0.5) for z in (-0.5, 0.5)])
        return self.centroid + (signs * self.size) @ self.axes


@dataclass(frozen=True)
class Scene:
    """One room with all that is known about it."""

    id: str
    vertices: NDArray[np.float32]
    """(n, 3)"""
    faces: NDArray[np.int32]
    """(m, 3)"""
    colors: NDArray[np.uint8]
    """(n, 3) per vertex."""
    instances: NDArray[np.int32]
    """(m,) index into `boxes` of the object each face belongs to; -1 for walls, floor and the like."""
    boxes: tuple[Box, ...]
    floor: Array
    """(k, 2) corners of the floor plan, counter-clockwise."""
    trajectory: Array
    """(t, 4, 4) camera-to-world poses of the recorded walk; may be empty."""


ALIASES = {"tv": "tv_monitor", "monitor": "tv_monitor"}


def canonical_label(text: str) -> str:
    """A label as LookAct writes it: "TV/monitor", "tv monitor" and "tv" are all `tv_monitor`."""
    label = re.sub(r"[^a-z0-9]+", "_", text.strip().lower()).strip("_")
    return ALIASES.get(label, label)


def label_text(label: str) -> str:
    """A class label as words."""
    return label.replace("_", " ")


def camera_pose(x: float, y: float, yaw: float, *, height: float, pitch: float = 0.0) -> Array:
    """Camera-to-world (4, 4) at (x, y, height). Yaw 0 looks along +X and grows counter-clockwise (left);
    pitch is positive looking up. Radians."""
    c, s = np.cos(yaw), np.sin(yaw)
    level, rise = np.cos(pitch), np.sin(pitch)
    # columns: right, down, forward, place
    return np.array(
        [
            [s, rise * c, level * c, x],
            [-c, rise * s, level * s, y],
            [0.0, -level, rise, height],
            [0.0, 0.0, 0.0, 1.0],
        ]
    )
