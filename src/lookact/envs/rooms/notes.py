"""Layouts of real rooms: VSI-Bench's scene notes furnished with our own shapes.

The notes tell a room's size and the oriented box of every object. The room becomes a rectangle of that size round the
boxes, turned as most of them are, with corners cut out where the boxes spread further than the size allows. Objects
stand in their boxes, facing along the first axis as the annotators had it. Counts, sizes, distances, directions and
the room's size are those of the notes; walls, door, windows, colours and the recorded walk are ours. The frame is ours
too: the room lies round the origin, its walls along X and Y, its floor at z = 0.
"""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path

import numpy as np

from lookact.envs.rooms import living
from lookact.envs.rooms.architecture import build_structure
from lookact.envs.rooms.furniture import BLOCK, KINDS, SCREEN, make_piece
from lookact.envs.rooms.generate import ARM, out_of_reach, record_trajectory
from lookact.envs.rooms.layout import DOOR_WIDTH, FloorPlan, Standing, Wall, cut_corner, door_zone
from lookact.envs.rooms.obstacles import footprint, footprint_distance, vertical_extent
from lookact.envs.rooms.parts import Placed, assemble
from lookact.envs.rooms.questions.facts import polygon_area
from lookact.envs.rooms.scene import Array, Box, Scene
from lookact.envs.rooms.scene_sources import file_version
from lookact.envs.rooms.space import free_space
from lookact.envs.rooms.vsi import load_scene_notes
from lookact.errors import DataError
from lookact.seeding import numpy_rng

MARGIN = 0.04
"""Metres between a box and the walls: the skirting's depth and a little."""
AT_WALL = 0.3
"""Metres from its back to a wall within which an object counts as standing at it."""
HANGING = ("tv_monitor", "stove")
"""Annotated as panels without what carries them, so they don't tell where the floor is."""
SLAB = 0.3
"""Metres; a stove lower than this is a cooktop, drawn with the counter under it."""
SCREEN_HEIGHT, COOKTOP_HEIGHT = 1.1, 0.92
DOOR_STEP = 0.1
LONGEST = 2.0
"""Of its shorter side, the longer side of a room that grows along one axis only."""


@dataclass(frozen=True)
class Layout:
    """A furnished room, and what could not be had as the notes say."""

    scene: Scene
    problems: tuple[str, ...]


def read_notes(path: str | Path) -> dict[str, Scene]:
    """The scenes of a file of notes, by id, read once until it changes."""
    return _read_notes(*file_version(path))


@lru_cache(maxsize=8)
def _read_notes(path: str, changed: int) -> dict[str, Scene]:
    return load_scene_notes(path)


def load_layout(path: str | Path, scene_id: str) -> Layout:
    """One room of a file of scene notes, furnished."""
    notes = read_notes(path)
    if scene_id not in notes:
        known = ", ".join(list(notes)[:3])
        raise DataError(f"{path}: has no scene '{scene_id}'; it has {len(notes)}, such as {known}")
    return furnish_notes(notes[scene_id])


def furnish_notes(notes: Scene) -> Layout:
    """The room of a scene that has boxes and a size, but neither mesh nor true floor plan."""
    if not notes.boxes:
        raise DataError(f"scene {notes.id} has no objects: nothing tells where its room is")
    rng = numpy_rng(0, "notes", notes.id)
    boxes, middle = _align(notes)
    plan, centre = _floor_plan(boxes, middle, polygon_area(notes.floor), height=float(rng.uniform(2.4, 2.8)))
    boxes = tuple(dataclasses.replace(box, centroid=box.centroid - (*centre, 0.0)) for box in boxes)
    standing = [_stand(plan, box, boxes, rng) for box in boxes]
    plan = _with_door(plan, standing, rng)
    objects = [Placed(item.piece.parts, item.x, item.y, item.yaw, number) for number, item in enumerate(standing)]
    mesh = assemble([*build_structure(plan, standing, rng), *objects])
    scene = Scene(
        notes.id, mesh.vertices, mesh.faces, mesh.colors, mesh.instances, boxes, plan.floor, np.zeros((0, 4, 4))
    )
    space = free_space(scene)
    if not space.free.any():
        raise DataError(f"scene {notes.id} is too full to stand in: leave it out")
    problems = [f"{box.uid}: no free floor within {ARM} m of it" for box in out_of_reach(scene, space)]
    size, wanted = polygon_area(plan.floor), polygon_area(notes.floor)
    if abs(size - wanted) > 0.05:
        problems.append(
            f"{notes.id}: the floor has {size:.1f} m², the notes say {wanted:.1f}: its objects spread further"
        )
    return Layout(dataclasses.replace(scene, trajectory=record_trajectory(space, rng)), tuple(problems))


def _align(notes: Scene) -> tuple[tuple[Box, ...], Array]:
    """The boxes turned so that most stand along X and Y, on the floor at z = 0; and the notes' middle (2,), turned."""
    yaw = sum(size.max() * np.exp(4j * np.arctan2(*axes[0][::-1])) for axes, size in map(footprint, notes.boxes))
    turn = np.eye(3)
    cosine, sine = np.cos(np.angle(yaw) / 4), np.sin(np.angle(yaw) / 4)
    turn[:2, :2] = [[cosine, sine], [-sine, cosine]]
    feet = [vertical_extent(box)[0] for box in notes.boxes if box.label not in HANGING]
    if not feet:
        hung = {"tv_monitor": SCREEN_HEIGHT, "stove": COOKTOP_HEIGHT}
        feet = [float(box.centroid[2]) - hung[box.label] for box in notes.boxes]
    drop = np.array([0.0, 0.0, np.median(feet)])
    boxes = tuple(
        dataclasses.replace(box, centroid=turn @ (box.centroid - drop), axes=box.axes @ turn.T) for box in notes.boxes
    )
    return boxes, turn[:2, :2] @ notes.floor.mean(axis=0)


def _floor_plan(boxes: tuple[Box, ...], middle: Array, size: float, *, height: float) -> tuple[FloorPlan, Array]:
    """A room of `size` m² that holds all boxes, near its `middle`; and where its centre is in the boxes' frame."""
    rectangles = np.array([[*box.corners()[:, :2].min(axis=0), *box.corners()[:, :2].max(axis=0)] for box in boxes])
    rectangles += MARGIN * np.array([-1, -1, 1, 1])
    low, high = rectangles[:, :2].min(axis=0), rectangles[:, 2:].max(axis=0)
    sides = high - low
    fixed = _wall_sides(boxes, low, high)
    grown = _grow(sides, size, fixed)
    # where one side of two is known to be a wall, all that is added lies on the other
    middle = np.where(fixed[0] > fixed[1], np.inf, np.where(fixed[1] > fixed[0], -np.inf, middle))
    centre = np.clip(middle, high - grown / 2, low + grown / 2)
    corners = grown / 2 * np.array([[-1, -1], [1, -1], [1, 1], [-1, 1]])
    rectangles -= np.tile(centre, 2)
    cuts = _empty_corners(rectangles, grown / 2, float(grown.prod()) - size)
    notches = [np.zeros((0, 4))]
    for corner in sorted(cuts, reverse=True):
        corners, notch = cut_corner(corners, corner, cuts[corner])
        notches.append(notch)
    tallest = max(vertical_extent(box)[1] for box in boxes)
    return FloorPlan(corners, np.concatenate(notches), max(height, tallest + 0.1), 0, 0.0), centre


def _wall_sides(boxes: tuple[Box, ...], low: Array, high: Array) -> Array:
    """(2, 2) whether a wall runs along the low and the high end of X and Y: something turns its back to it there."""
    sides = np.zeros((2, 2), dtype=bool)
    for box in boxes:
        if box.label not in KINDS or KINDS[box.label].at_wall:
            back = -footprint(box)[0][0]
            corners = box.corners()[:, :2]
            sides[0] |= (back < -0.9) & (corners.min(axis=0) < low + AT_WALL)
            sides[1] |= (back > 0.9) & (corners.max(axis=0) > high - AT_WALL)
    return sides


def _grow(sides: Array, size: float, fixed: Array) -> Array:
    """The sides (2,) of a room of `size` m² round things that need `sides`: as much more along both, unless walls at
    both ends of one say how long it is and the room does not become a corridor."""
    spare = max(size - float(sides.prod()), 0.0)
    between = fixed.all(axis=0)
    if between.sum() == 1:
        grown = np.where(between, sides, size / sides[::-1])
        if spare and grown.max() / grown.min() < LONGEST:
            return grown
    grown = sides + (np.sqrt(sides.sum() ** 2 + 4 * spare) - sides.sum()) / 2
    return np.asarray(grown)


def _empty_corners(rectangles: Array, half: Array, excess: float) -> dict[int, Array]:
    """Corners of a room to cut out where no rectangle (n, 4) lies, until `excess` m² are gone: the (x, y) of each."""
    cuts: dict[int, Array] = {}
    taken = rectangles
    signs = np.array([[-1, -1], [1, -1], [1, 1], [-1, 1]])
    while excess > 0.01 and len(cuts) < 4:
        corner, cut = max(
            ((corner, _largest_cut(taken, half, signs[corner])) for corner in range(4) if corner not in cuts),
            key=lambda found: float(found[1].prod()),
        )
        if cut.prod() < 0.01:
            break
        if cut.prod() > excess:
            cut = cut * np.sqrt(excess / cut.prod())
        cuts[corner] = cut
        excess -= float(cut.prod())
        ends = np.stack([signs[corner] * half, signs[corner] * (half - cut)])
        # a wall between two cuts is no thinner than a door is wide
        taken = np.vstack([taken, np.hstack([ends.min(axis=0) - DOOR_WIDTH, ends.max(axis=0) + DOOR_WIDTH])])
    return cuts


def _largest_cut(taken: Array, half: Array, sign: Array) -> Array:
    """The (x, y) of the largest empty rectangle in one corner of a room."""
    near = np.maximum(np.minimum(half - sign * taken[:, :2], half - sign * taken[:, 2:]), 0.0)
    best = np.zeros(2)
    for reach in {0.0, *near[:, 0].tolist(), float(2 * half[0])}:
        # what begins before `reach` along X limits the cut along Y
        depth = near[near[:, 0] < reach - 1e-9, 1].min(initial=float(2 * half[1]))
        cut = np.minimum([reach, depth], 2 * half - DOOR_WIDTH)
        best = cut if cut.prod() > best.prod() else best
    return best


def _stand(plan: FloorPlan, box: Box, boxes: tuple[Box, ...], rng: np.random.Generator) -> Standing:
    """The object in its box."""
    axes, (depth, width) = footprint(box)
    bottom, top = vertical_extent(box)
    front = axes[0]
    if box.label == "stove" and top - bottom < SLAB:
        bottom = 0.0
    panel = box.label == "tv_monitor" and depth < KINDS[box.label].depth[0] / 2
    kind = SCREEN if panel else KINDS.get(box.label, BLOCK)
    piece = make_piece(box.label, rng, (float(width), float(depth), top - bottom), kind)
    wall = next((number for number, wall in enumerate(plan.walls) if _backed(box, wall)), -1)
    parts = piece.parts
    if panel and wall < 0 and not any(_carries(other, box) for other in boxes):
        parts = np.vstack([parts, living.screen_stand(float(width), bottom)])
    parts[:, [3, 6]] += bottom
    x, y = box.centroid[:2].tolist()
    yaw = float(np.arctan2(-front[0], front[1]))
    return Standing(dataclasses.replace(piece, parts=parts), x, y, yaw, wall, bottom)


def _backed(box: Box, wall: Wall) -> bool:
    """Whether an object stands with its back to a wall."""
    axes, (depth, _) = footprint(box)
    away = float((box.centroid[:2] - wall.start) @ wall.normal) - depth / 2
    return bool(axes[0] @ wall.normal > 0.9 and 0 <= away < AT_WALL)


def _carries(box: Box, panel: Box) -> bool:
    """Whether the panel stands on the box."""
    gap = vertical_extent(panel)[0] - vertical_extent(box)[1]
    return box is not panel and gap < AT_WALL and float(footprint_distance(box, panel.centroid[:2])) == 0.0


def _with_door(plan: FloorPlan, standing: list[Standing], rng: np.random.Generator) -> FloorPlan:
    """The plan with its door where least stands before it, by draw where there are several such places."""
    doors = [
        dataclasses.replace(plan, door_wall=number, door_start=float(start))
        for number, wall in enumerate(plan.walls)
        for start in np.arange(0.2, wall.length - DOOR_WIDTH - 0.2, DOOR_STEP)
    ]
    if not doors:
        return plan
    solids = np.array([item.rectangle for item in standing])
    zones = np.array([door_zone(door) for door in doors])
    overlap = np.minimum(zones[:, None, 2:], solids[:, 2:]) - np.maximum(zones[:, None, :2], solids[:, :2])
    covered = np.maximum(overlap, 0.0).prod(axis=2).sum(axis=1)
    free = np.flatnonzero(covered <= covered.min() + 1e-9)
    return doors[int(free[rng.integers(len(free))])]
