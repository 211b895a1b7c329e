"""Navigation tasks: which object to reach, where reaching it counts, and where to start.

An object is reached when the centre of the agent's floor cell lies within `success_distance` of the object's
footprint in the plan, with no wall in between. Distances to the goal are walking distances to the nearest such cell.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from functools import lru_cache

import numpy as np
from numpy.typing import NDArray

from lookact.envs.rooms.motion import Pose
from lookact.envs.rooms.obstacles import footprint, inside_floor
from lookact.envs.rooms.scene import Array, Box, label_text
from lookact.envs.rooms.simulator import Simulator, random_pose, uncrowded_cells
from lookact.envs.rooms.space import distance_field
from lookact.envs.rooms.wordings import QUESTIONS
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

    def distance(self, pose: Pose) -> float:
        """Walking distance in metres from a pose to where the goal counts as reached."""
        return float(self.field[self.sim.space.index(np.array([pose.x, pose.y]))])


@lru_cache(maxsize=256)
def find_task(
    sim: Simulator, seed: int, difficulty: Difficulty, questions: tuple[str, ...] = QUESTIONS
) -> NavigationTask | None:
    """The task that `seed` draws in this scene, or None if no object with a label of its own can be started from."""
    labels = Counter(box.label for box in sim.scene.boxes)
    goals = [index for index, box in enumerate(sim.scene.boxes) if labels[box.label] == 1]
    low, high = difficulty.start_distance
    for goal in numpy_rng(seed, "goal").permutation(goals):
        field = goal_field(sim, int(goal), difficulty.success_distance)
        far = uncrowded_cells(sim.space) & (field >= low) & (field <= high)
        if far.any():
            start = random_pose(sim, numpy_rng(seed, "start"), far)
            return _make_task(sim, int(goal), field, start, seed, questions)
    return None


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
