"""Labelled images of the table for vision pretraining: objects and arm anywhere they may come to be."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from lookact.envs.tabletop.control import REACH_LOW
from lookact.envs.tabletop.drawers import ON_HANDLE, TRAVEL
from lookact.envs.tabletop.env import Tabletop
from lookact.envs.tabletop.language import TARGET_NAMES
from lookact.envs.tabletop.orientation import Vector
from lookact.envs.tabletop.randomise import GROUNDS, TURNS
from lookact.envs.tabletop.scene import COLOURS
from lookact.seeding import numpy_rng
from lookact.types import Image

NAMED = len(COLOURS), len(COLOURS)
"""Kinds of what an instruction names: the object's colour and the target's."""
UNNAMED = -100
"""In place of a kind that the task's instructions do not name."""
POSITIONS = 6
"""Numbers of an image's label: object and target relative to the tool, x, y and z."""
NEAR, HELD = 0.25, 0.25
"""Fractions of images with the tool close to the object, and with the object between the fingers; else it is far."""
FAR = 0.05
"""Metres from the tool to an object that is far."""


@dataclass(frozen=True)
class LabelledImage:
    """Frames of all cameras, with true positions."""

    images: dict[str, Image]
    state: NDArray[np.float32]
    positions: NDArray[np.float32]
    """(6,) metres from the tool to the object and to the target."""
    instruction: str
    """Which names object and target."""
    named: NDArray[np.int64]
    """(2,) what it names, as numbers among `NAMED` of each."""
    keypoints: dict[str, NDArray[np.float32]]
    """Camera to (2, 2): where in its frame object and target are, across and down in -1..1; NaN where outside it."""


def labelled_image(env: Tabletop, seed: int) -> LabelledImage:
    """The image of a seed, with a scene of its own."""
    env.reset(seed=seed)
    rng = numpy_rng(seed, "look")
    now = env.situation()
    of_drawer = env.task.endswith("drawer")
    drawer = rng.uniform(0.0, TRAVEL) if of_drawer else None
    if of_drawer:
        env.rearrange(now.tool, 1.0, drawer=drawer)
        now = env.situation()
    place, opening, thing = _draw_place(rng, env.task, now.object)
    turns = env.controller.mode == "ee_delta_yaw"
    yaw = float(rng.uniform(-TURNS[env.layout.kind], TURNS[env.layout.kind])) if turns else 0.0
    shown = env.rearrange(place, opening, thing, yaw=yaw, drawer=drawer)
    now = env.situation()
    positions = np.concatenate([now.object - now.tool, now.target - now.tool]).astype(np.float32)
    things = np.stack([now.object, now.target])
    keypoints = {camera: project(env, camera, things) for camera in env.cameras}
    images = {camera: shown[camera] for camera in env.cameras}
    return LabelledImage(images, shown["state"], positions, env.instruction, named_by(env), keypoints)


def named_by(env: Tabletop) -> NDArray[np.int64]:
    """(2,) the object's colour and the target's, of the present scene's instruction."""
    (colour, _), target = env.look.objects[0], env.look.targets[0]
    goal = list(COLOURS).index(target) if env.task in TARGET_NAMES else UNNAMED
    # a drawer's instructions name no object
    return np.array([list(COLOURS).index(colour) if env.layout.objects else UNNAMED, goal])


def project(env: Tabletop, camera: str, places: Vector) -> NDArray[np.float32]:
    """Places (n, 3) of the world in a camera's frame: (n, 2) across and down in -1..1, NaN outside it."""
    eye = env.model.camera(camera).id
    # a camera looks along its own -z, with x to its right and y up
    seen = (places - env.data.cam_xpos[eye]) @ env.data.cam_xmat[eye].reshape(3, 3)
    depth = -seen[:, 2] * np.tan(np.radians(env.model.cam_fovy[eye]) / 2)
    points = seen[:, :2] * [1.0, -1.0] / np.maximum(depth, 1e-6)[:, None]
    outside = (depth <= 0) | np.any(np.abs(points) > 1, axis=1)
    return np.where(outside[:, None], np.nan, points).astype(np.float32)


def _draw_place(rng: np.random.Generator, task: str, thing: Vector) -> tuple[Vector, float, Vector | None]:
    """Where the tool is, how far open, and where the object is if not where it lay."""
    low, high = (np.array(corner) for corner in GROUNDS[task])
    anywhere = rng.uniform([*(low - 0.03), 0.015], [*(high + 0.03), 0.22])
    kind = rng.random()
    if task.endswith("drawer") and kind < HELD:
        return thing + ON_HANDLE + rng.normal(0.0, 0.003, 3), rng.uniform(0.2, 1.0), None
    if kind < HELD:
        return anywhere, rng.uniform(0.4, 0.6), anywhere + rng.normal(0.0, 0.003, 3)
    if kind < HELD + NEAR:
        beside = thing + rng.normal(0.0, [0.02, 0.02, 0.0]) + [0.0, 0.0, abs(rng.normal(0.0, 0.05))]
        return np.maximum(beside, REACH_LOW), rng.uniform(0.6, 1.0), None
    while np.linalg.norm(anywhere - thing) < FAR:
        anywhere = rng.uniform([*(low - 0.03), 0.015], [*(high + 0.03), 0.22])
    return anywhere, rng.uniform(0.3, 1.0), None
