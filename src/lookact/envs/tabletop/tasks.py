"""Reach, push, pick and place: how far a task has come, and when it is done.

Progress is a potential between 0 and 1, a function of the present alone, and 1 exactly where the task is done. The
dense reward is its difference from step to step, so that rewards add up to the progress made.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from lookact.envs.tabletop.orientation import Vector
from lookact.envs.tabletop.scene import STAND_HEIGHT, TARGET_RADIUS

TASKS = ("reach", "push", "pick_place")
ABOVE = np.array([0.0, 0.0, 0.05])
"""From an object's middle to the point that `reach` asks for."""
REACHED = 0.025
MARKED = 0.035
STEADY = 0.006
"""Metres that an object may lie above where it rests and still counts as put down."""
CLEARANCE = 0.06
"""Metres above a stand from where lowering counts."""
BEHIND = 0.06
"""Metres behind an object where a push begins."""


@dataclass(frozen=True)
class Situation:
    """The state that rewards and experts depend on."""

    tool: Vector
    object: Vector
    """The middle of the object that is asked for."""
    target: Vector
    """On the table, the middle of the target that is asked for."""
    rest: float
    """Height of the object's middle when it lies on the table."""
    held: bool
    """Both fingers touch the object."""
    touched: bool
    """At least one finger does."""


def progress(task: str, now: Situation) -> float:
    """How far the task has come, from 0 to 1; 1 if and only if it is done."""
    if succeeded(task, now):
        return 1.0
    if task == "reach":
        return 0.95 * _near(now.object + ABOVE - now.tool, 0.15)
    if task == "push":
        return _push_progress(now)
    return _pick_progress(now)


def succeeded(task: str, now: Situation) -> bool:
    """Whether the task is done."""
    if task == "reach":
        return bool(np.linalg.norm(now.object + ABOVE - now.tool) < REACHED)
    if task == "push":
        return _apart(now) < MARKED
    return placed(now) and not now.touched


def placed(now: Situation) -> bool:
    """Whether the object lies on top of the stand."""
    height = now.object[2] - now.rest - STAND_HEIGHT
    return bool(_apart(now) < TARGET_RADIUS - 0.012 and abs(height) < STEADY)


def behind(now: Situation) -> Vector:
    """Where the tool begins a push: at the object's side that faces away from the target, low above the table."""
    away = now.object[:2] - now.target[:2]
    spot = now.object[:2] + BEHIND * away / max(float(np.linalg.norm(away)), 1e-6)
    return np.array([*spot, 0.015])


def _push_progress(now: Situation) -> float:
    return 0.25 * _near(behind(now) - now.tool, 0.15) + 0.65 * _near(np.array([_apart(now)]), 0.15)


def _pick_progress(now: Situation) -> float:
    """Near the object, held, lifted to the stand's height, above the stand, lowered, put down: each adds its share."""
    if placed(now):
        return 0.9
    reached = 0.25 * _near(now.object - now.tool, 0.15)
    if not now.held:
        return reached
    height = float(now.object[2]) - now.rest
    lifted = min(max(height / STAND_HEIGHT, 0.0), 1.0)
    lowered = min(max(1 - (height - STAND_HEIGHT) / CLEARANCE, 0.0), 1.0)
    over = lifted * _near(np.array([_apart(now)]), 0.15)
    return reached + 0.1 + 0.15 * lifted + 0.25 * over + 0.1 * over * lowered


def _apart(now: Situation) -> float:
    return float(np.linalg.norm(now.object[:2] - now.target[:2]))


def _near(gap: Vector, scale: float) -> float:
    """1 where the gap is nil, falling with its length."""
    return float(1 - np.tanh(np.linalg.norm(gap) / scale))
