"""Navigation tasks: which object to reach, where reaching it counts, and where to start.

An object is reached when the centre of the agent's floor cell lies within `success_distance` of the object's
footprint in the plan, with no wall in between. Distances to the goal are walking distances to the nearest such cell.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass
from functools import lru_cache
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from lookact.envs.rooms.motion import Pose, wrap
from lookact.envs.rooms.obstacles import footprint, inside_floor
from lookact.envs.rooms.scene import CLASSES, Array, Box, canonical_label, label_text
from lookact.envs.rooms.simulator import CAMERA_HEIGHT, Simulator, random_pose, uncrowded_cells
from lookact.envs.rooms.space import distance_field
from lookact.envs.rooms.wordings import QUESTIONS
from lookact.errors import EnvError
from lookact.seeding import derive, numpy_rng

ROUNDING = 1e-6
"""Metres by which a distance may exceed `success_distance` and still be it: no rounding decides over a success."""


@dataclass(frozen=True)
class Difficulty:
    """What counts as reached, and how far away an episode starts."""

    success_distance: float = 1.0
    """Metres from the object's footprint."""
    start_distance: tuple[float, float] = (2.25, 6.0)
    """Shortest and longest walk to where the goal counts as reached, in metres."""
    classes: tuple[str, ...] = CLASSES
    """Of what may be asked for."""


@dataclass(frozen=True)
class Choice:
    """What of an episode is given instead of drawn."""

    goal: str | None = None
    """A label that one object alone bears, or a box's uid."""
    pose: tuple[float, ...] | None = None
    """x, y, yaw and perhaps height: metres and radians."""
    question: str | None = None

    @classmethod
    def of(cls, options: Mapping[str, Any]) -> Choice:
        """From the options of a reset; what can't be read is one line."""
        texts = {name: options.get(name) for name in ("goal", "question")}
        for name, text in texts.items():
            if text is not None and not (isinstance(text, str) and text.strip()):
                raise EnvError(f"option {name} is {text!r}: give it as text")
        pose = options.get("pose")
        if pose is None:
            return cls(**texts)
        try:
            numbers = tuple(float(number) for number in pose)
        except (TypeError, ValueError):
            numbers = ()
        if len(numbers) not in (3, 4) or not np.isfinite(numbers).all():
            raise EnvError(f"option pose is {pose!r}: give x, y in metres, yaw in radians, and perhaps the height")
        return cls(pose=numbers, **texts)


ANY = Choice()


@dataclass(frozen=True, eq=False)
class NavigationTask:
    """One question with its start: all that episodes of a group share."""

    sim: Simulator
    goal: int
    """Index into `sim.scene.boxes`."""
    label: str
    question: str
    question_id: str
    field: NDArray[np.float32]
    """Walking distance in metres from every floor cell to the goal; inf where there is no way."""
    start: Pose
    shortest: float
    right_turns: ClassVar[bool] = True
    """Any way to the goal is right."""

    def distance(self, pose: Pose) -> float:
        """Walking distance in metres from a pose to where the goal counts as reached."""
        return float(self.field[self.sim.space.index(np.array([pose.x, pose.y]))])


@lru_cache(maxsize=256)
def find_task(
    sim: Simulator,
    seed: int,
    difficulty: Difficulty,
    questions: tuple[str, ...] = QUESTIONS,
    choice: Choice = ANY,
) -> NavigationTask | None:
    """The task that `seed` draws in this scene, or None if no object with a label of its own can be started from."""
    questions = questions if choice.question is None else (choice.question,)
    given = None if choice.pose is None else given_pose(sim, choice.pose)
    low, high = difficulty.start_distance
    for goal in numpy_rng(seed, "goal").permutation(_goals(sim, choice.goal, difficulty.classes)):
        field = goal_field(sim, int(goal), difficulty.success_distance)
        far = uncrowded_cells(sim.space) & (field >= low) & (field <= high)
        if given is None and far.any():
            start = random_pose(sim, numpy_rng(seed, "start"), far)
            return _make_task(sim, int(goal), field, start, seed, questions)
        if given is not None and 0 < field[sim.space.index(np.array([given.x, given.y]))] < np.inf:
            return _make_task(sim, int(goal), field, given, seed, questions)
    return None


def _goals(sim: Simulator, wanted: str | None, classes: tuple[str, ...]) -> list[int]:
    """The objects that a question may ask for: those with a label of their own, or the one that is wanted."""
    boxes = sim.scene.boxes
    labels = Counter(box.label for box in boxes)
    if wanted is None:
        return [index for index, box in enumerate(boxes) if labels[box.label] == 1 and box.label in classes]
    found = [index for index, box in enumerate(boxes) if wanted == box.uid or canonical_label(wanted) == box.label]
    if len(found) == 1:
        return found
    if not found:
        raise EnvError(f"option goal is {wanted!r}: {sim.scene.id} has {', '.join(sorted(labels))}")
    uids = ", ".join(boxes[index].uid for index in found)
    raise EnvError(f"option goal is {wanted!r}, and {sim.scene.id} has {len(found)}: give one of {uids}")


def given_pose(sim: Simulator, numbers: tuple[float, ...]) -> Pose:
    """The pose of x, y, yaw and perhaps height, which must be on free floor."""
    x, y, yaw, height = numbers if len(numbers) == 4 else (*numbers, CAMERA_HEIGHT)
    if not sim.space.contains(np.array([x, y])):
        (left, near), (right, far) = sim.scene.floor.min(axis=0), sim.scene.floor.max(axis=0)
        room = f"{left:.1f} … {right:.1f}, {near:.1f} … {far:.1f}"
        raise EnvError(f"option pose stands at ({x:g}, {y:g}), where no floor is free: {sim.scene.id} spans {room}")
    return Pose(x, y, wrap(yaw), height)


@lru_cache(maxsize=256)
def goal_field(sim: Simulator, goal: int, success_distance: float) -> NDArray[np.float32]:
    """Walking distance in metres from every floor cell to the nearest one where object `goal` counts as reached."""
    space = sim.space
    rows, cols = np.nonzero(space.free)
    centres = space.origin + (np.stack([cols, rows], axis=1) + 0.5) * space.cell
    nearest = nearest_on_footprint(sim.scene.boxes[goal], centres)
    near = np.linalg.norm(centres - nearest, axis=1) <= success_distance + ROUNDING
    near[near] = _in_sight(sim.scene.floor, centres[near], nearest[near])
    reached = np.zeros_like(space.free)
    reached[rows[near], cols[near]] = True
    return distance_field(space, reached)


def nearest_on_footprint(box: Box, points: Array) -> Array:
    """For points (n, 2) of the plan, the nearest points (n, 2) of the rectangle that a box covers."""
    axes, size = footprint(box)
    local = np.clip((points - box.centroid[:2]) @ axes.T, -size / 2, size / 2)
    nearest: Array = box.centroid[:2] + local @ axes
    return nearest


def _in_sight(floor: Array, points: Array, targets: Array) -> NDArray[np.bool_]:
    # the last fifth is left out: an object stands against its wall, and a scanned box may reach into it
    steps = np.linspace(0.0, 0.8, 9)[:, None, None]
    between = points + steps * (targets - points)
    return np.asarray(inside_floor(floor, between).all(axis=0))


def _make_task(
    sim: Simulator, goal: int, field: NDArray[np.float32], start: Pose, seed: int, questions: tuple[str, ...]
) -> NavigationTask:
    label = label_text(sim.scene.boxes[goal].label)
    question = questions[derive(seed, "wording") % len(questions)].format(label=label)
    question_id = f"{sim.scene.id}_navigation_{seed}"
    shortest = float(field[sim.space.index(np.array([start.x, start.y]))])
    return NavigationTask(sim, goal, label, question, question_id, field, start, shortest)
