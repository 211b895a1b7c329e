"""Floor, walls, ceiling, skirting, door, windows, pictures and lamp of a room, as parts."""

from __future__ import annotations

import colorsys
from collections.abc import Sequence

import numpy as np

from lookact.envs.rooms.layout import DOOR_WIDTH, FloorPlan, Standing
from lookact.envs.rooms.parts import CEILING, FLOOR, WALL, Color, Part, Placed, box, shaded, tube
from lookact.envs.rooms.scene import Array

SILL, LINTEL = 0.95, 2.0
DOOR_HEIGHT = 2.03
SKY: Color = (196.0, 226.0, 250.0)
FLOORS = ((0.075, 0.36, 0.7), (0.06, 0.45, 0.55), (0.1, 0.2, 0.82), (0.09, 0.06, 0.72), (0.58, 0.08, 0.7))
"""Hue, saturation, value: oak, walnut, ash, stone, slate."""
WALLS = ((0.12, 0.1), (0.55, 0.1), (0.36, 0.08), (0.98, 0.08), (0.72, 0.07), (0.08, 0.14))
"""Hue, saturation: cream, sky, sage, rose, lilac, sand."""


def build_structure(plan: FloorPlan, standing: Sequence[Standing], rng: np.random.Generator) -> list[Placed]:
    """All that is not furniture."""
    hue, saturation = WALLS[rng.integers(len(WALLS))]
    skirting = (238.0, 236.0, 230.0) if rng.random() < 0.7 else (92.0, 68.0, 52.0)
    paint = colorsys.hsv_to_rgb(hue, saturation, 0.9)
    color: Color = (255 * paint[0], 255 * paint[1], 255 * paint[2])
    floor = _floor(plan, rng)
    placed = [Placed(floor), Placed(_ceiling(plan)), Placed(_walls(plan, color))]
    placed += [_shadow(item, floor[:, 7:].mean(axis=0)) for item in standing if item.lift < SILL / 2]
    for number, wall in enumerate(plan.walls):
        parts = [box(0, 0, 0, wall.length, 0.018, 0.09, skirting)]
        taken = [_span(plan, item) for item in standing if item.wall == number]
        if number == plan.door_wall:
            parts += _door(plan.door_start, rng)
            taken.append((plan.door_start - 0.1, plan.door_start + DOOR_WIDTH + 0.1, DOOR_HEIGHT))
        parts += _hangings(wall.length, taken, rng)
        placed.append(Placed(np.array(parts, dtype=np.float64), wall.start[0], wall.start[1], wall.yaw))
    return placed


def _span(plan: FloorPlan, item: Standing) -> tuple[float, float, float]:
    """The stretch of its wall an object covers: from, to, and how high."""
    wall = plan.walls[item.wall]
    middle = float((np.array([item.x, item.y]) - wall.start) @ wall.direction)
    width, _, height = item.piece.size
    return middle - width / 2, middle + width / 2, height


def _floor(plan: FloorPlan, rng: np.random.Generator) -> Array:
    """Planks or tiles that differ a little, so that motion over the floor can be seen."""
    hue, saturation, value = FLOORS[rng.integers(len(FLOORS))]
    tiles = saturation < 0.3
    steps = (0.5, 0.5) if tiles else ((1.1, 0.22), (0.22, 1.1))[int(rng.integers(2))]
    parts, index = _grid(plan, steps, 0.0, FLOOR)
    shade = 1.0 + (0.05 * (index.sum(axis=1) % 2 * 2 - 1) if tiles else rng.uniform(-0.1, 0.1, size=len(parts)))
    color = np.array(colorsys.hsv_to_rgb(hue, saturation, value)) * 255
    parts[:, 7:] = np.clip(color * shade[:, None], 0, 255)
    return parts


def _shadow(item: Standing, color: Array) -> Placed:
    """The floor under an object in two darker shades, which makes it stand rather than float."""
    x, y = item.piece.size[0] / 2, item.piece.size[1] / 2
    rims = ((0.09, 0.002, 0.84), (0.03, 0.004, 0.66))
    parts = [(FLOOR, -x - rim, -y - rim, z, x + rim, y + rim, z, *(color * shade)) for rim, z, shade in rims]
    return Placed(np.array(parts), item.x, item.y, item.yaw)


def _ceiling(plan: FloorPlan) -> Array:
    """A pale ceiling and a round lamp."""
    parts, _ = _grid(plan, (100.0, 100.0), plan.height, CEILING)
    parts[:, 7:] = 244, 243, 238
    widest = parts[np.argmax((parts[:, 4] - parts[:, 1]) * (parts[:, 5] - parts[:, 2]))]
    x, y = (widest[1] + widest[4]) / 2, (widest[2] + widest[5]) / 2
    lamp = tube(x - 0.25, y - 0.25, plan.height - 0.06, x + 0.25, y + 0.25, plan.height, (255, 246, 214))
    return np.vstack([parts, lamp])


def _grid(plan: FloorPlan, steps: tuple[float, float], z: float, shape: int) -> tuple[Array, Array]:
    """Level rectangles that cover the floor plan, colourless parts (p, 10), and their (column, row) (p, 2)."""
    x0, y0, x1, y1 = plan.bounds
    xs = np.unique(np.concatenate([np.arange(x0, x1, steps[0]), [x1], plan.notch[:, [0, 2]].ravel()]).clip(x0, x1))
    ys = np.unique(np.concatenate([np.arange(y0, y1, steps[1]), [y1], plan.notch[:, [1, 3]].ravel()]).clip(y0, y1))
    column, row = np.mgrid[: len(xs) - 1, : len(ys) - 1].reshape(2, -1)
    middle = np.stack([(xs[column] + xs[column + 1]) / 2, (ys[row] + ys[row + 1]) / 2], axis=1)
    cut = (middle[:, None] > plan.notch[:, :2]) & (middle[:, None] < plan.notch[:, 2:])
    kept = ~np.any(np.all(cut, axis=2), axis=1)
    column, row = column[kept], row[kept]
    parts = np.zeros((len(column), 10))
    parts[:, 0], parts[:, 3], parts[:, 6] = shape, z, z
    parts[:, 1], parts[:, 4], parts[:, 2], parts[:, 5] = xs[column], xs[column + 1], ys[row], ys[row + 1]
    steps_index = np.floor((np.stack([xs[column], ys[row]], axis=1) - (x0, y0)) / steps + 1e-6)
    return parts, steps_index


def _walls(plan: FloorPlan, color: Color) -> Array:
    """One painted rectangle a wall, neighbours a shade apart."""
    return np.array([
        (WALL, *wall.start, 0.0, *(wall.start + wall.direction * wall.length), plan.height,
         *shaded(color, (1.0, 0.95)[number % 2]))
        for number, wall in enumerate(plan.walls)
    ])  # fmt: skip


def _door(start: float, rng: np.random.Generator) -> list[Part]:
    """A panelled door in its frame; x runs along the wall and y into the room."""
    red, green, blue = colorsys.hsv_to_rgb(rng.uniform(0.05, 0.1), rng.uniform(0.1, 0.45), rng.uniform(0.6, 0.9))
    color: Color = (255 * red, 255 * green, 255 * blue)
    end, frame = start + DOOR_WIDTH, (246.0, 244.0, 238.0)
    return [
        box(start, 0, 0, end, 0.02, DOOR_HEIGHT, frame),
        box(start + 0.06, 0.02, 0, end - 0.06, 0.028, DOOR_HEIGHT - 0.06, color),
        box(start + 0.17, 0.028, 0.2, end - 0.17, 0.034, 0.85, shaded(color, 0.85)),
        box(start + 0.17, 0.028, 1.1, end - 0.17, 0.034, 1.8, shaded(color, 0.85)),
        box(end - 0.14, 0.028, 0.97, end - 0.09, 0.08, 1.02, (190, 170, 110)),
    ]


def _hangings(length: float, taken: list[tuple[float, float, float]], rng: np.random.Generator) -> list[Part]:
    """Perhaps a window and a picture, where nothing tall stands before them."""
    parts: list[Part] = []
    for kind, chance in (("window", 0.55), ("picture", 0.6)):
        width = rng.uniform(0.9, 1.4) if kind == "window" else rng.uniform(0.4, 0.7)
        draw, place, hue = rng.random(3)
        start = 0.25 + place * (length - width - 0.5)
        free = all(start > high + 0.05 or start + width < low - 0.05 or top < SILL for low, high, top in taken)
        if draw < chance and length > width + 0.5 and free:
            parts += _window(start, start + width) if kind == "window" else _picture(start, start + width, hue)
            taken.append((start, start + width, LINTEL))
    return parts


def _window(start: float, end: float) -> list[Part]:
    """Panes of sky in a white frame over a sill."""
    middle, white = (start + end) / 2, (250.0, 250.0, 248.0)
    return [
        box(start, 0, SILL, end, 0.03, LINTEL, white),
        box(start + 0.06, 0.03, SILL + 0.06, middle - 0.02, 0.034, LINTEL - 0.06, SKY),
        box(middle + 0.02, 0.03, SILL + 0.06, end - 0.06, 0.034, LINTEL - 0.06, SKY),
        box(start + 0.06, 0.034, SILL + 0.06, middle - 0.02, 0.036, SILL + 0.3, (150, 190, 130)),
        box(middle + 0.02, 0.034, SILL + 0.06, end - 0.06, 0.036, SILL + 0.24, (138, 182, 122)),
        box(start - 0.05, 0, SILL - 0.04, end + 0.05, 0.09, SILL, white),
    ]


def _picture(start: float, end: float, hue: float) -> list[Part]:
    """A small abstract painting in a dark frame."""
    low, high = 1.35, 1.35 + 0.8 * (end - start)
    far = colorsys.hsv_to_rgb(hue, 0.35, 0.85)
    near = colorsys.hsv_to_rgb((hue + 0.4) % 1.0, 0.5, 0.7)
    horizon = low + 0.4 * (high - low)
    return [
        box(start, 0, low, end, 0.025, high, (58, 46, 40)),
        box(
            start + 0.04, 0.025, low + 0.04, end - 0.04, 0.028, high - 0.04, (255 * far[0], 255 * far[1], 255 * far[2])
        ),
        box(start + 0.04, 0.028, low + 0.04, end - 0.04, 0.03, horizon, (255 * near[0], 255 * near[1], 255 * near[2])),
    ]
