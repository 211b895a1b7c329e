"""Looks at the table with the truth beside them, for lessons in seeing: things and arm anywhere they may come to be."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from lookact.envs.tabletop.control import REACH_LOW
from lookact.envs.tabletop.env import Tabletop
from lookact.envs.tabletop.orientation import Vector
from lookact.envs.tabletop.randomise import GROUNDS
from lookact.seeding import numpy_rng
from lookact.types import Image

FACTS = 6
"""Numbers that a look is told: the way from the tool to the object and to the target, x, y and z."""
NEAR, HELD = 0.4, 0.3
"""Shares of looks with the tool close to the object, and with the object between the fingers."""


@dataclass(frozen=True)
class TableLook:
    """What the cameras show, and where things truly are."""

    images: dict[str, Image]
    state: NDArray[np.float32]
    facts: NDArray[np.float32]
    """(6,) metres from the tool to the object and to the target."""
    spots: dict[str, NDArray[np.float32]]
    """Camera to (2, 2): where in its picture object and target are, across and down in -1..1; NaN where outside it."""


def look_around(env: Tabletop, seeds: Sequence[int]) -> Iterator[TableLook]:
    """One look into each of the scenes behind the seeds."""
    for seed in seeds:
        env.reset(seed=seed)
        rng = numpy_rng(seed, "look")
        now = env.situation()
        place, opening, thing = _draw_place(rng, env.task, now.object)
        shown = env.rearrange(place, opening, thing)
        now = env.situation()
        facts = np.concatenate([now.object - now.tool, now.target - now.tool]).astype(np.float32)
        things = np.stack([now.object, now.target])
        spots = {camera: find_in_picture(env, camera, things) for camera in env.cameras}
        yield TableLook({camera: shown[camera] for camera in env.cameras}, shown["state"], facts, spots)


def find_in_picture(env: Tabletop, camera: str, places: Vector) -> NDArray[np.float32]:
    """Where a camera shows places (n, 3) of the world: (n, 2) across and down in -1..1, NaN where it does not."""
    eye = env.model.camera(camera).id
    # a camera looks along its own -z, with x to its right and y up
    seen = (places - env.data.cam_xpos[eye]) @ env.data.cam_xmat[eye].reshape(3, 3)
    depth = -seen[:, 2] * np.tan(np.radians(env.model.cam_fovy[eye]) / 2)
    spots = seen[:, :2] * [1.0, -1.0] / np.maximum(depth, 1e-6)[:, None]
    outside = (depth <= 0) | np.any(np.abs(spots) > 1, axis=1)
    return np.where(outside[:, None], np.nan, spots).astype(np.float32)


def _draw_place(rng: np.random.Generator, task: str, thing: Vector) -> tuple[Vector, float, Vector | None]:
    """Where the tool is, how far open, and where the object is if not where it lay."""
    low, high = (np.array(corner) for corner in GROUNDS[task])
    anywhere = rng.uniform([*(low - 0.03), 0.015], [*(high + 0.03), 0.22])
    kind = rng.random()
    if kind < HELD:
        return anywhere, rng.uniform(0.4, 0.6), anywhere + rng.normal(0.0, 0.003, 3)
    if kind < HELD + NEAR:
        beside = thing + rng.normal(0.0, [0.02, 0.02, 0.0]) + [0.0, 0.0, abs(rng.normal(0.0, 0.05))]
        return np.maximum(beside, REACH_LOW), rng.uniform(0.6, 1.0), None
    return anywhere, rng.uniform(0.3, 1.0), None
