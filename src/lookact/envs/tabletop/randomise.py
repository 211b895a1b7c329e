"""What differs from episode to episode, and what is kept for tests out of distribution.

A scene seed decides how things look, a start seed where they are. A `shift` takes one factor of an episode, or several
together (`FACTORS`), from ranges that training never shows.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

import numpy as np

from lookact.envs.tabletop.drawers import TRAVEL, handle_place, lateral
from lookact.envs.tabletop.language import TARGET_NAMES, WORDINGS
from lookact.envs.tabletop.orientation import Vector
from lookact.envs.tabletop.scene import (
    COLOURS,
    HEAD_EYE,
    HEAD_FOVY,
    HEAD_POINT,
    PLAIN_NAMES,
    SHAPES,
    SURFACES,
)
from lookact.errors import EnvError
from lookact.seeding import numpy_rng

FACTORS: dict[str, tuple[str, ...]] = {
    "vision": ("surfaces", "light", "camera"),
    "semantics": ("wording", "pairs"),
    "execution": ("places", "start_pose"),
    "dynamics": ("friction", "mass", "latency"),
}
"""Shifts of several factors together; each factor is a shift of its own too."""
SHIFTS = ("none", *FACTORS, *(factor for factors in FACTORS.values() for factor in factors))
SEEN_SURFACES = 8
"""The first surfaces are for training, the others for the vision shift."""
HELD_OUT_PAIRS = (
    ("red", "cylinder"),
    ("green", "brick"),
    ("blue", "cube"),
    ("yellow", "cylinder"),
    ("purple", "brick"),
    ("orange", "cube"),
)
LONG_NAMES = {plain: shape for shape, plain in PLAIN_NAMES.items()}
SEEN_PAIRS = tuple((colour, shape) for colour in COLOURS for shape in SHAPES if (colour, shape) not in HELD_OUT_PAIRS)
TOOL_START = np.array([0.45, 0.0, 0.18])
GROUNDS = {
    "reach": ((0.4, -0.16), (0.6, 0.16)),
    "push": ((0.38, -0.13), (0.48, 0.13)),
    "pick_place": ((0.41, -0.15), (0.59, 0.15)),
    "stack": ((0.41, -0.15), (0.59, 0.15)),
    # of the cabinet's front
    "open_drawer": ((0.41, -0.08), (0.46, 0.08)),
    "close_drawer": ((0.41, -0.08), (0.46, 0.08)),
}
"""Low and high corner of where things lie in training."""
RIM = 0.045
"""Metres around the training ground where the execution shift puts the object."""
ELSEWHERE = 0.08
"""Metres around the training ground where distractors may lie too."""
SPACING = 0.125
"""Metres between the middles of things: room for open fingers beside a stand."""
ATTEMPTS = 1000
TURNS = {"plain": 0.4, "long": 1.45}
"""Radians by which objects are turned at most, either way."""
SIZES = 0.85, 1.15
"""Least and greatest size of an object, where sizes differ."""


@dataclass(frozen=True)
class Randomisation:
    """Which sides of a scene differ from episode to episode."""

    appearance: bool = True
    """Colours and shapes of objects and targets."""
    background: bool = False
    light: bool = False
    camera: bool = False
    clutter: bool = False
    sizes: bool = False
    """Sizes of objects."""


@dataclass(frozen=True)
class Look:
    """How a scene looks."""

    surfaces: tuple[int, int, int]
    """Of the table, the floor and the wall."""
    lights: Vector
    """(2, 3) colour of each light."""
    directions: Vector
    """(2, 3) the way each light shines."""
    eye: Vector
    point: Vector
    fovy: float
    objects: tuple[tuple[str, str], ...]
    """(colour, shape) of each; the first is the one asked for."""
    targets: tuple[str, ...]
    """Colours; the first is the one asked for."""
    clutter: tuple[tuple[str, str, float, float], ...]
    """(colour, shape, x, y) of things that are only seen."""
    sizes: tuple[float, ...]
    """How many times its usual size each object has."""


@dataclass(frozen=True)
class Start:
    """Where everything is at first."""

    tool: Vector
    objects: Vector
    """(n, 3) x, y and yaw of each object; of a drawer, its handle."""
    targets: Vector
    """(n, 2); of a drawer, where its handle is once it is open or shut."""
    turns: Vector = field(default_factory=lambda: np.zeros(0))
    """(n,) yaw of each block."""
    cabinet: Vector = field(default_factory=lambda: np.zeros(3))
    """x, y and yaw."""
    openings: Vector = field(default_factory=lambda: np.zeros(0))
    """(n,) metres that each drawer is open."""
    slots: Vector = field(default_factory=lambda: np.zeros(0))
    """(n,) metres across from the cabinet's middle to each drawer's."""


@dataclass(frozen=True)
class Dynamics:
    """How the table and its things answer to the arm."""

    friction: float = 1.0
    """Times that of training, of fingers, objects and surfaces alike."""
    mass: float = 1.0
    """Times that of training, of objects."""
    latency: int = 0
    """Steps between an action and its execution."""


def shifts(shift: str, factor: str) -> bool:
    """Whether a shift takes this factor from beyond training."""
    return factor == shift or factor in FACTORS.get(shift, ())


def draw_look(seed: int, change: Randomisation, shift: str, *, things: int, clutter: int, kind: str = "plain") -> Look:
    """The look behind a scene seed, with so many objects of a kind and targets, and so many places for clutter."""
    eye, point, fovy = _draw_camera(seed, change.camera, shifts(shift, "camera"))
    lights, directions = _draw_lights(seed, change.light, shifts(shift, "light"))
    objects, targets = _draw_things(seed, change.appearance, shifts(shift, "pairs"), things)
    seen = _draw_clutter(seed, clutter if change.clutter else 0)
    if kind == "long":
        objects = tuple((colour, LONG_NAMES[shape]) for colour, shape in objects)
        seen = tuple((colour, LONG_NAMES[shape], x, y) for colour, shape, x, y in seen)
    return Look(
        surfaces=_draw_surfaces(seed, change.background, shifts(shift, "surfaces")),
        lights=lights,
        directions=directions,
        eye=eye,
        point=point,
        fovy=fovy,
        objects=objects,
        targets=targets,
        clutter=seen,
        sizes=tuple(numpy_rng(seed, "sizes").uniform(*SIZES, things)) if change.sizes else (1.0,) * things,
    )


def draw_start(seed: int, task: str, shift: str, *, things: int, kind: str = "plain") -> Start:
    """The places behind a start seed."""
    rng = numpy_rng(seed, "places")
    if task.endswith("drawer"):
        return _draw_cabinet(rng, task, shift, things)
    unseen = shifts(shift, "places")
    named = [_draw_spot(rng, task, RIM if unseen else 0.0, hollow=unseen)]
    named.append(_draw_goal(rng, named[0]) if task == "push" else _draw_clear(rng, task, named, 0.0))
    others = list(named)
    for _ in range(2 * (things - 1)):
        others.append(_draw_clear(rng, task, others, ELSEWHERE))
    spots = [named[0], *others[2 : 1 + things], named[1], *others[1 + things :]]
    most = np.pi / 4 if task == "push" else TURNS[kind]
    objects = np.column_stack([np.array(spots[:things]), rng.uniform(-most, most, things)])
    tool = _draw_tool(rng, shifts(shift, "start_pose"))
    turns = rng.uniform(-TURNS["plain"], TURNS["plain"], things)
    return Start(tool, objects, np.array(spots[things:]), turns)


def _draw_cabinet(rng: np.random.Generator, task: str, shift: str, things: int) -> Start:
    """A cabinet of so many drawers; the first is asked for."""
    unseen = shifts(shift, "places")
    spot = _draw_spot(rng, task, RIM if unseen else 0.0, hollow=unseen)
    cabinet = np.array([*spot, rng.uniform(-0.3, 0.3)])
    closing = task == "close_drawer"
    openings = rng.uniform(0.07, TRAVEL, things) if closing else rng.uniform(0.0, 0.02, things)
    slots = rng.permutation([lateral(index, things) for index in range(things)])
    handles = [handle_place(cabinet, slot, opening) for slot, opening in zip(slots, openings)]
    ends = [handle_place(cabinet, slot, 0.0 if closing else TRAVEL) for slot in slots]
    objects = np.array([[*handle[:2], cabinet[2]] for handle in handles])
    tool = _draw_tool(rng, shifts(shift, "start_pose"))
    return Start(tool, objects, np.array(ends)[:, :2], cabinet=cabinet, openings=openings, slots=slots)


def draw_dynamics(seed: int, shift: str, *, latency: int = 0) -> Dynamics:
    """Training's own, with so many steps of latency, or beyond them by half to double."""
    rng = numpy_rng(seed, "dynamics")
    friction, mass = float(rng.uniform(0.5, 0.7)), float(rng.choice([rng.uniform(0.4, 0.6), rng.uniform(2.0, 3.0)]))
    return Dynamics(
        friction=friction if shifts(shift, "friction") else 1.0,
        mass=mass if shifts(shift, "mass") else 1.0,
        latency=latency + shifts(shift, "latency"),
    )


def _draw_surfaces(seed: int, change: bool, unseen: bool) -> tuple[int, int, int]:
    rng = numpy_rng(seed, "background")
    low, high = (SEEN_SURFACES, len(SURFACES)) if unseen else (0, SEEN_SURFACES)
    table, floor, wall = (int(index) for index in rng.integers(low, high, 3))
    return (table, floor, wall) if change or unseen else (0, 4, 1)


def _draw_lights(seed: int, change: bool, unseen: bool) -> tuple[Vector, Vector]:
    rng = numpy_rng(seed, "light")
    directions = np.array([[-0.3, 0.5, -1.0], [-0.2, -0.7, -1.0]])
    if unseen:
        # one strong tinted lamp from low down, the other almost out
        strong = rng.uniform(0.55, 0.75) * (1 - rng.uniform(0, 0.35, 3))
        directions[0] = [rng.uniform(-0.9, 0.9), rng.choice([-1.6, 1.6]), -1.0]
        return np.stack([strong, np.full(3, 0.08)]), directions
    if not change:
        return np.full((2, 3), 0.32), directions
    colours = rng.uniform(0.2, 0.42, (2, 1)) * (1 - rng.uniform(0, 0.1, (2, 3)))
    directions[:, :2] += rng.uniform(-0.3, 0.3, (2, 2))
    return colours, directions


def _draw_camera(seed: int, change: bool, unseen: bool) -> tuple[Vector, Vector, float]:
    rng = numpy_rng(seed, "camera")
    direction = rng.normal(size=3)
    direction /= np.linalg.norm(direction)
    if unseen:
        return HEAD_EYE + rng.uniform(0.06, 0.1) * direction, HEAD_POINT + rng.uniform(-0.015, 0.015, 3), HEAD_FOVY
    if not change:
        return HEAD_EYE.copy(), HEAD_POINT.copy(), HEAD_FOVY
    eye = HEAD_EYE + rng.uniform(0, 0.04) * direction
    return eye, HEAD_POINT + rng.uniform(-0.01, 0.01, 3), HEAD_FOVY + rng.uniform(-1.5, 1.5)


def _draw_things(
    seed: int, change: bool, unseen: bool, things: int
) -> tuple[tuple[tuple[str, str], ...], tuple[str, ...]]:
    """Objects and targets, no two of a kind in one colour, and the first two in different colours.

    A held-out pair is only ever the object asked for, where pairs are `unseen`.
    """
    rng = numpy_rng(seed, "things")
    chosen = HELD_OUT_PAIRS if unseen else SEEN_PAIRS
    first = chosen[int(rng.integers(len(chosen)))] if change or unseen else ("red", "cube")
    objects = [first]
    for colour in rng.permutation([colour for colour in COLOURS if colour != first[0]])[: things - 1]:
        objects.append((str(colour), str(rng.choice([shape for other, shape in SEEN_PAIRS if other == colour]))))
    others = [str(colour) for colour in rng.permutation([colour for colour in COLOURS if colour != first[0]])]
    if not (change or unseen):
        others = ["blue", *(colour for colour in others if colour != "blue")]
    return tuple(objects), tuple(others[:things])


def _draw_clutter(seed: int, places: int) -> tuple[tuple[str, str, float, float], ...]:
    rng = numpy_rng(seed, "clutter")
    found = []
    for _ in range(int(rng.integers(1, places + 1)) if places else 0):
        side = rng.choice([-1.0, 1.0])
        x, y = (rng.uniform(0.3, 0.75), side * rng.uniform(0.23, 0.3))
        colour, shape = SEEN_PAIRS[int(rng.integers(len(SEEN_PAIRS)))]
        found.append((colour, shape, float(x), float(y)))
    return tuple(found)


def _draw_spot(rng: np.random.Generator, task: str, rim: float, *, hollow: bool = False) -> Vector:
    """A place on the task's ground widened by `rim`, or only on that rim where `hollow`."""
    low, high = (np.array(corner) for corner in GROUNDS[task])
    while True:
        spot = rng.uniform(low - rim, high + rim)
        if not hollow or np.any(spot < low) or np.any(spot > high):
            return spot


def _draw_clear(rng: np.random.Generator, task: str, taken: Sequence[Vector], rim: float) -> Vector:
    """A place with room to all that are taken."""
    for _ in range(ATTEMPTS):
        spot = _draw_spot(rng, task, rim)
        if min(float(np.linalg.norm(spot - other)) for other in taken) > SPACING:
            return spot
    raise EnvError(f"no room on the table beside {len(taken)} things: ask for fewer distractors")


def _draw_goal(rng: np.random.Generator, origin: Vector) -> Vector:
    """Where a push shall end: farther from the arm, roughly straight ahead."""
    angle, distance = rng.uniform(-0.6, 0.6), rng.uniform(0.13, 0.18)
    return origin + distance * np.array([np.cos(angle), np.sin(angle)])


def _draw_tool(rng: np.random.Generator, unseen: bool) -> Vector:
    if not unseen:
        return TOOL_START + rng.uniform([-0.03, -0.03, -0.02], [0.03, 0.03, 0.02])
    side = np.where(rng.random(3) < 0.5, -1.0, 1.0)
    return TOOL_START + side * rng.uniform([0.04, 0.06, 0.03], [0.07, 0.1, 0.05])


def name_words() -> tuple[str, ...]:
    """The words that tell things apart: all others may be put differently.

    Shapes are not among them: no two objects have one colour. Were they always told, a shape that never goes with a
    colour in training would say that this colour is the target's, and unseen pairs would be misread.
    """
    return (*COLOURS, *TARGET_NAMES.values())


def instruction_corpus(task: str, kind: str = "plain") -> Iterator[str]:
    """Every instruction of a task that training may give: a tiny tokenizer is fitted on them."""
    pairs = SEEN_PAIRS if kind == "plain" else [(colour, LONG_NAMES[shape]) for colour, shape in SEEN_PAIRS]
    objects = [" ".join(pair) for pair in pairs]
    for wording in WORDINGS[task]:
        for thing in objects:
            for colour in COLOURS:
                yield wording.format(object=thing, target=f"{colour} {TARGET_NAMES.get(task, 'mark')}")
