"""Procedural rooms with a recorded camera trajectory: the same seed and style give the same room, bit for bit."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from scipy import ndimage

from lookact.envs.rooms.architecture import build_structure
from lookact.envs.rooms.furniture import make_piece
from lookact.envs.rooms.layout import Standing, furnish, sample_floor_plan
from lookact.envs.rooms.obstacles import footprint_distance
from lookact.envs.rooms.parts import Placed, assemble
from lookact.envs.rooms.scene import CLASSES, Array, Box, Scene, camera_pose
from lookact.envs.rooms.space import FreeSpace, distance_field, free_space, shortest_path
from lookact.errors import ConfigError, EnvError
from lookact.seeding import numpy_rng

ATTEMPTS = 64
ARM = 0.8
"""Every object has free floor within this many metres."""
TURN_FRAMES = 14
"""Frames of a full turn."""
WALK_FRAMES = 20
"""Frames on the way."""
CAMERA_HEIGHT = 1.4
CAMERA_PITCH = -0.22


@dataclass(frozen=True)
class RoomStyle:
    """What rooms may be like."""

    objects: tuple[int, int] = (4, 8)
    """The fewest and the most."""
    classes: tuple[str, ...] = CLASSES
    side: tuple[float, float] = (4.0, 6.5)
    """Metres."""
    shapes: tuple[str, ...] = ("rectangle", "L")
    distinct: bool = True
    """No class twice, as long as there are enough classes."""

    def __post_init__(self) -> None:
        for name, known in ((self.classes, CLASSES), (self.shapes, ("rectangle", "L"))):
            if not name or set(name) - set(known):
                raise ConfigError(f"{name} can't furnish a room: choose from {', '.join(known)}")


DEFAULT_STYLE = RoomStyle()


def generate_room(seed: int, style: RoomStyle = DEFAULT_STYLE) -> Scene:
    """A furnished room whose free space is connected and reaches every object."""
    for attempt in range(ATTEMPTS):
        scene = _attempt_room(seed, style, attempt)
        if scene is not None:
            return scene
    raise EnvError(
        f"no room for {style.objects[0]} objects within sides of {style.side} m: widen `side` or ask for fewer"
    )


def _attempt_room(seed: int, style: RoomStyle, attempt: int) -> Scene | None:
    """One draw of a room; None if the furniture does not fit or cuts the floor apart."""
    rng = numpy_rng(seed, "room", attempt)
    shape = style.shapes[rng.integers(len(style.shapes))]
    plan = sample_floor_plan(rng, side=style.side, shape=shape)
    pieces = [make_piece(label, rng) for label in _draw_labels(style, attempt, rng)]
    standing = furnish(plan, pieces, rng)
    if standing is None:
        return None
    structure = build_structure(plan, standing, rng)
    objects = [Placed(item.piece.parts, item.x, item.y, item.yaw, number) for number, item in enumerate(standing)]
    mesh = assemble([*structure, *objects])
    scene = Scene(
        f"room-{seed}", mesh.vertices, mesh.faces, mesh.colors, mesh.instances,
        _boxes(standing), plan.floor, np.zeros((0, 4, 4)),
    )  # fmt: skip
    space = free_space(scene)
    if out_of_reach(scene, space):
        return None
    return dataclasses.replace(scene, trajectory=record_trajectory(space, rng))


def _draw_labels(style: RoomStyle, attempt: int, rng: np.random.Generator) -> list[str]:
    """The classes of a room's objects; after many failed attempts fewer of them."""
    fewest, most = style.objects
    count = max(fewest, int(rng.integers(fewest, most + 1)) - attempt // 4)
    if not style.distinct:
        return [style.classes[i] for i in rng.integers(len(style.classes), size=count)]
    labels: list[str] = []
    while len(labels) < count:
        labels += [style.classes[i] for i in rng.permutation(len(style.classes))]
    return labels[:count]


def _boxes(standing: Sequence[Standing]) -> tuple[Box, ...]:
    """The box of each object, turned as it is."""
    boxes = []
    for number, item in enumerate(standing):
        cosine, sine = np.cos(item.yaw), np.sin(item.yaw)
        axes = np.array([[cosine, sine, 0.0], [-sine, cosine, 0.0], [0.0, 0.0, 1.0]])
        centroid = np.array([item.x, item.y, item.piece.size[2] / 2])
        boxes.append(Box(f"{item.piece.label}-{number}", item.piece.label, centroid, np.array(item.piece.size), axes))
    return tuple(boxes)


def out_of_reach(scene: Scene, space: FreeSpace) -> list[Box]:
    """The objects that an agent can't stand beside."""
    rows, cols = np.nonzero(space.free)
    points = space.origin + (np.stack([cols, rows], axis=1) + 0.5) * space.cell
    return [box for box in scene.boxes if footprint_distance(box, points).min(initial=np.inf) > ARM]


def record_trajectory(space: FreeSpace, rng: np.random.Generator) -> Array:
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
    places, headings = _sample_path(path)
    spin = np.linspace(0.0, 2 * np.pi, TURN_FRAMES, endpoint=False)
    # the head turns from side to side on the way, so that both walls are seen
    swing = 0.7 * np.sin(np.linspace(0.0, 4 * np.pi, WALK_FRAMES))
    xy = np.concatenate([np.repeat(path[:1], TURN_FRAMES, axis=0), places, np.repeat(path[-1:], TURN_FRAMES, axis=0)])
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


def _sample_path(path: Array) -> tuple[Array, Array]:
    """Evenly spaced points (WALK_FRAMES, 2) on a path, and the yaw (WALK_FRAMES,) towards what lies a little ahead."""
    steps = np.linalg.norm(np.diff(path, axis=0), axis=1)
    travelled = np.concatenate([[0.0], np.cumsum(steps)])
    marks = np.linspace(0.0, travelled[-1], WALK_FRAMES)
    points = [np.stack([np.interp(at, travelled, path[:, axis]) for axis in (0, 1)], axis=1)
              for at in (marks, np.minimum(marks + 0.5, travelled[-1]), np.maximum(marks - 0.2, 0.0))]  # fmt: skip
    ahead = points[1] - points[2]
    return points[0], np.arctan2(ahead[:, 1], ahead[:, 0])
