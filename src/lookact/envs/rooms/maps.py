"""Top-down maps of rooms: furniture, walls, labels, paths and camera poses."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from PIL import Image, ImageDraw, ImageFont

from lookact.envs.rooms.obstacles import inside_floor, vertical_extent
from lookact.envs.rooms.render import Renderer
from lookact.envs.rooms.scene import Array, Scene, camera_pose
from lookact.envs.rooms.space import FreeSpace, cells_of
from lookact.types import FloorMap

Picture = NDArray[np.uint8]
Ink = tuple[int, int, int]

PAPER: Ink = (250, 248, 243)
WALL: Ink = (72, 70, 78)
GOAL: Ink = (226, 54, 86)
PATHS: tuple[Ink, ...] = ((38, 110, 214), (232, 112, 28), (22, 150, 110), (150, 78, 190))
AGENT: Ink = (22, 44, 92)
MARGIN = 0.05
"""The part of the picture left free on each side."""
SMOOTH = 2
KEPT_SIZE = 480
"""Pixels of the map that an episode is kept with."""


@dataclass(frozen=True)
class _Sheet:
    """A picture of the floor plan and its scale: metres with Y up become pixels with Y down."""

    middle: Array
    scale: float
    pixels: int

    @classmethod
    def of(cls, scene: Scene, pixels: int) -> _Sheet:
        """The whole floor, with a margin."""
        low, high = scene.floor.min(axis=0), scene.floor.max(axis=0)
        return cls((low + high) / 2, pixels * (1 - 2 * MARGIN) / float((high - low).max()), pixels)

    def to_pixels(self, xy: Array) -> list[tuple[float, float]]:
        """Points (k, 2) as pixel pairs for PIL."""
        offset = (np.asarray(xy, dtype=np.float64).reshape(-1, 2) - self.middle) * self.scale
        return [(self.pixels / 2 + x, self.pixels / 2 - y) for x, y in offset.tolist()]

    def to_metres(self) -> Array:
        """The point (p, p, 2) under each pixel."""
        steps = (np.arange(self.pixels) + 0.5 - self.pixels / 2) / self.scale
        x, y = np.meshgrid(steps, -steps)
        points: Array = self.middle + np.stack([x, y], axis=-1)
        return points


def draw_map(
    scene: Scene,
    *,
    space: FreeSpace | None = None,
    paths: Sequence[Array] = (),
    poses: Sequence[Array] | Array = (),
    goal: int | None = None,
    labels: bool = True,
    size: int = 512,
    smooth: int = SMOOTH,
    letters: float = 1 / 38,
) -> Picture:
    """The room from above (size, size, 3): free cells tinted, paths (k, 2) from ring to dot, poses (4, 4) as wedges.

    It is drawn `smooth` times larger, then shrunk; `letters` are as high as this share of it.
    """
    sheet = _Sheet.of(scene, size * smooth)
    image = Image.fromarray(_view_from_above(scene, sheet, space))
    draw = ImageDraw.Draw(image, "RGBA")
    corners = sheet.to_pixels(scene.floor)
    width = max(2, sheet.pixels // 90)
    draw.line([*corners, *corners[:2]], fill=WALL, width=width, joint="curve")
    if goal is not None:
        _outline(draw, sheet, scene, goal, width)
    for number, path in enumerate(paths):
        _draw_path(draw, sheet, path, PATHS[number % len(PATHS)], width)
    for pose in poses:
        _draw_pose(draw, sheet, pose)
    image = image.resize((size, size), Image.Resampling.LANCZOS)
    if labels:
        _write_labels(image, _Sheet.of(scene, size), scene, goal, max(9.0, letters * size))
    return np.asarray(image, dtype=np.uint8)


def floor_map(scene: Scene, goal: int | None = None, *, size: int = KEPT_SIZE) -> FloorMap:
    """The room and its goal without any path, at a fifth of the cost of a smoothed picture."""
    sheet = _Sheet.of(scene, size)
    x, y = sheet.middle.tolist()
    # it is mostly seen small, beside a camera's picture
    return FloorMap(draw_map(scene, goal=goal, size=size, smooth=1, letters=1 / 27), (x, y), sheet.scale)


def draw_walk(room: FloorMap, poses: Array) -> Picture:
    """The map (h, w, 3) with the path through poses (k, 4) of x, y, yaw and height, and where the last one looks."""
    size = room.picture.shape[0]
    sheet = _Sheet(np.array(room.middle), room.scale * SMOOTH, size * SMOOTH)
    image = Image.fromarray(room.picture).resize((sheet.pixels, sheet.pixels), Image.Resampling.BICUBIC)
    draw = ImageDraw.Draw(image, "RGBA")
    _draw_path(draw, sheet, poses[:, :2], PATHS[0], sheet.pixels // 90)
    x, y, yaw, height = poses[-1].tolist()
    _draw_pose(draw, sheet, camera_pose(x, y, yaw, height=height))
    return np.asarray(image.resize((size, size), Image.Resampling.LANCZOS), dtype=np.uint8)


def _view_from_above(scene: Scene, sheet: _Sheet, space: FreeSpace | None) -> Picture:
    """What lies below the tallest object, seen straight down; paper outside the room."""
    points = sheet.to_metres()
    inside = inside_floor(scene.floor, points)
    picture = np.empty((*inside.shape, 3), dtype=np.uint8)
    picture[...] = PAPER
    top = max([1.2, *(vertical_extent(box)[1] for box in scene.boxes)]) + 0.05
    picture[inside] = Renderer(scene).look_down(points[inside], top)
    if space is not None:
        index = cells_of(points[inside], space.origin, space.cell).clip(0, np.array(space.free.shape[::-1]) - 1)
        free = np.zeros(inside.shape, dtype=bool)
        free[inside] = space.free[index[:, 1], index[:, 0]]
        picture[free] = (0.72 * picture[free] + 0.28 * np.array([120, 214, 150])).astype(np.uint8)
    return picture


def _outline(draw: ImageDraw.ImageDraw, sheet: _Sheet, scene: Scene, goal: int, width: int) -> None:
    """A coloured frame round the goal's box."""
    corners = scene.boxes[goal].corners()[:, :2]
    # corners come with the box's x outermost: 0, 2, 6, 4 go round its floor plan
    ring = sheet.to_pixels(corners[[0, 2, 6, 4]])
    draw.polygon(ring, fill=(*GOAL, 48))
    draw.line([*ring, *ring[:2]], fill=GOAL, width=width, joint="curve")


def _draw_path(draw: ImageDraw.ImageDraw, sheet: _Sheet, path: Array, ink: Ink, width: int) -> None:
    """A line with a ring at its start and a dot at its end."""
    points = sheet.to_pixels(path)
    if not points:
        return
    draw.line(points, fill=(255, 255, 255), width=width + 4, joint="curve")
    draw.line(points, fill=ink, width=width, joint="curve")
    draw.circle(points[0], 1.3 * width, fill=(255, 255, 255), outline=ink, width=max(2, width // 2))
    draw.circle(points[-1], 1.3 * width, fill=ink, outline=(255, 255, 255), width=max(2, width // 4))


def _draw_pose(draw: ImageDraw.ImageDraw, sheet: _Sheet, pose: Array) -> None:
    """A dot with the wedge of floor it looks at."""
    x, y = sheet.to_pixels(pose[:2, 3])[0]
    heading = float(np.degrees(np.arctan2(-pose[1, 2], pose[0, 2])))
    reach, dot = 0.55 * sheet.scale, 0.11 * sheet.scale
    draw.pieslice((x - reach, y - reach, x + reach, y + reach), heading - 35, heading + 35, fill=(255, 226, 92, 110))
    draw.circle((x, y), dot, fill=AGENT, outline=(255, 255, 255), width=max(2, int(dot / 4)))


def _write_labels(image: Image.Image, sheet: _Sheet, scene: Scene, goal: int | None, letters: float) -> None:
    """Each object's name over its middle, on a soft plate."""
    draw = ImageDraw.Draw(image, "RGBA")
    font = ImageFont.load_default(size=letters)
    for number, box in enumerate(scene.boxes):
        text = box.label.replace("_", " ")
        left, top, right, bottom = draw.textbbox((0, 0), text, font=font)
        x, y = sheet.to_pixels(box.centroid[:2])[0]
        half = (right - left) / 2 + 4
        x = min(max(x, half + 1), image.width - half - 1)
        plate = (x - half, y - (bottom - top) / 2 - 3, x + half, y + (bottom - top) / 2 + 3)
        draw.rounded_rectangle(plate, radius=4, fill=(*(GOAL if number == goal else (255, 255, 255)), 205))
        draw.text((x, y), text, font=font, fill=(255, 255, 255) if number == goal else WALL, anchor="mm")
