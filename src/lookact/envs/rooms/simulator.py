"""A scene ready to be simulated: renderer and free space, built once and shared, and the camera that moves in it."""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy import ndimage

from lookact.envs.rooms.generate import RoomStyle, generate_room
from lookact.envs.rooms.maps import floor_map
from lookact.envs.rooms.motion import Limits, Motion, Move, Pose, apply_move
from lookact.envs.rooms.notes import load_layout
from lookact.envs.rooms.render import Camera, Renderer
from lookact.envs.rooms.scan_cache import open_scan
from lookact.envs.rooms.scene import Scene
from lookact.envs.rooms.scene_sources import BETWEEN
from lookact.envs.rooms.space import FreeSpace, free_space
from lookact.errors import EnvError
from lookact.types import FloorMap, Image

CAMERA_HEIGHT = 1.2


@dataclass(frozen=True, eq=False)
class Simulator:
    """A scene, its renderer and its free space. Hashed by identity, so that work done for it can be cached."""

    scene: Scene
    renderer: Renderer
    space: FreeSpace


@dataclass(frozen=True, eq=False)
class View:
    """What one camera sees, with the object index of every pixel: experts may use it, agents are not shown it."""

    pose: Pose
    rgb: Image
    depth: NDArray[np.float32]
    """(h, w) metres along the viewing axis, 0 where nothing was hit."""
    instance: NDArray[np.int32]
    """(h, w) index into `Scene.boxes`, negative elsewhere."""

    def shown(self) -> dict[str, Any]:
        """The part that agents are shown, copied since they may keep it."""
        return {"rgb": self.rgb.copy(), "depth": self.depth.copy(), "pose": self.pose.vector()}


@lru_cache(maxsize=64)
def generated_simulator(seed: int, style: RoomStyle) -> Simulator:
    """The room that `seed` and `style` stand for."""
    scene = generate_room(seed, style)
    return Simulator(scene, Renderer(scene), free_space(scene))


@lru_cache(maxsize=64)
def recorded_simulator(source: str) -> Simulator:
    """The ARKitScenes scan in a folder, or a real room's layout: FILE.json#ID."""
    scene, space = recorded_scene(source)
    return Simulator(scene, Renderer(scene), space)


def recorded_scene(source: str) -> tuple[Scene, FreeSpace]:
    """The same without a renderer: for who only asks about it."""
    if BETWEEN not in source:
        return open_scan(source)
    scene = load_layout(*source.rsplit("#", 1)).scene
    return scene, free_space(scene)


@lru_cache(maxsize=32)
def cached_floor_map(sim: Simulator, goal: int | None = None) -> FloorMap:
    """The scene from above, cached: evaluations return to the same ones."""
    return floor_map(sim.scene, goal)


def random_pose(sim: Simulator, rng: np.random.Generator, mask: NDArray[np.bool_]) -> Pose:
    """A pose uniform over the floor cells of `mask` and all directions."""
    cells = np.argwhere(mask)
    if not len(cells):
        raise EnvError(f"nowhere to stand in {sim.scene.id}: check its floor plan")
    x, y = sim.space.centre(*cells[rng.integers(len(cells))])
    return Pose(float(x), float(y), float(rng.uniform(-np.pi, np.pi)), CAMERA_HEIGHT)


def uncrowded_cells(space: FreeSpace) -> NDArray[np.bool_]:
    """Free cells with a free cell or two all around: no start is wedged between two things."""
    open_cells: NDArray[np.bool_] = ndimage.binary_erosion(space.free, iterations=2)
    return open_cells if open_cells.any() else space.free


@lru_cache(maxsize=128)
def render_view(sim: Simulator, pose: Pose, camera: Camera) -> View:
    """One view, cached: episodes of a group start alike, and a third of their views were rendered a moment ago."""
    frames = sim.renderer.render(pose.matrix()[None], camera)
    for picture in (frames.rgb, frames.depth, frames.instance):
        picture.setflags(write=False)
    return View(pose, frames.rgb[0], frames.depth[0], frames.instance[0])


class Walker:
    """The agent in a simulator: its pose, its view, metres walked and collisions over an episode."""

    def __init__(self, sim: Simulator, start: Pose, camera: Camera, limits: Limits) -> None:
        self.sim, self.camera, self.limits = sim, camera, limits
        self.pose: Pose = start
        self.view: View = render_view(sim, start, camera)
        self.path_length = 0.0
        self.collisions = 0

    def move(self, move: Move) -> Motion:
        """Apply a move and render the new view."""
        motion = apply_move(self.sim.space, self.pose, move)
        self.pose = motion.pose
        self.view = render_view(self.sim, self.pose, self.camera)
        self.path_length += motion.travelled
        self.collisions += motion.collided
        return motion
