"""Labelled images of rooms for vision pretraining: per patch, class coverage and inverse depth."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from lookact.envs.rooms.generate import RoomStyle
from lookact.envs.rooms.motion import Pose
from lookact.envs.rooms.render import Camera
from lookact.envs.rooms.simulator import (
    CAMERA_HEIGHT,
    Simulator,
    View,
    generated_simulator,
    recorded_simulator,
    render_view,
)
from lookact.seeding import derive, numpy_rng
from lookact.types import Image

PATCH = 16
"""Pixels a side of the squares that coverage is told for: a Qwen3-VL patch."""


@dataclass(frozen=True)
class LabelledImage:
    """An image, and for each of its patches which objects it shows and how near they are."""

    rgb: Image
    coverage: NDArray[np.float32]
    """(rows, columns, classes) the share of a patch's pixels on each class of object."""
    inverse_depth: NDArray[np.float32]
    """(rows, columns) mean of 1 / (1 + metres)."""


def labelled_images(
    seed: int,
    *,
    rooms: Iterable[int],
    per_room: int,
    style: RoomStyle,
    camera: Camera,
    scenes: Sequence[str] = (),
    generated_share: float = 1.0,
) -> Iterator[LabelledImage]:
    """`per_room` images from random places, in random directions, into each of the rooms with these numbers.

    A room is generated, or, in all but `generated_share` of the numbers, one of `scenes` where there are any.
    """
    for room in rooms:
        rng = numpy_rng(seed, "look", room)
        if scenes and numpy_rng(seed, "scene", room).random() >= generated_share:
            sim = recorded_simulator(scenes[derive(seed, "scene", room) % len(scenes)])
        else:
            sim = generated_simulator(derive(seed, "room", room), style)
        cells = np.argwhere(sim.space.free)
        for _ in range(per_room):
            x, y = sim.space.centre(*cells[rng.integers(len(cells))])
            pose = Pose(float(x), float(y), float(rng.uniform(-np.pi, np.pi)), CAMERA_HEIGHT)
            yield annotate(render_view(sim, pose, camera), sim, style.classes)


def annotate(view: View, sim: Simulator, classes: tuple[str, ...]) -> LabelledImage:
    """A view with its patches described."""
    # structure and sky, -1 and -2, index the two places at the end
    places = {label: place for place, label in enumerate(classes)}
    kinds = np.array([*(places.get(box.label, -1) for box in sim.scene.boxes), -1, -1])[view.instance]
    coverage = np.stack([_patch_means(kinds == kind) for kind in range(len(classes))], axis=-1)
    # a depth of 0 says that nothing was hit, which is as far as it goes
    inverse_depth = np.where(view.depth > 0, 1.0 / (1.0 + view.depth), 0.0)
    return LabelledImage(view.rgb, coverage, _patch_means(inverse_depth))


def _patch_means(pixels: NDArray[np.generic]) -> NDArray[np.float32]:
    rows, columns = pixels.shape[0] // PATCH, pixels.shape[1] // PATCH
    means: NDArray[np.float32] = pixels.reshape(rows, PATCH, columns, PATCH).mean(axis=(1, 3), dtype=np.float32)
    return means
