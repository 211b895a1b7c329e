"""Reach, push, pick and place, stack, open and close a drawer: how far a task has come, and when it is done.

Progress is a potential between 0 and 1, a function of the present alone, and 1 exactly where the task is done. The
dense reward is its difference from step to step, so that rewards add up to the progress made.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from lookact.envs.tabletop.drawers import TRAVEL
from lookact.envs.tabletop.orientation import Vector
from lookact.envs.tabletop.scene import STAND_HEIGHT, TARGET_RADIUS

TASKS = ("reach", "push", "pick_place", "stack", "open_drawer", "close_drawer")
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
ON_STAND, ON_BLOCK = TARGET_RADIUS - 0.012, 0.018
"""Metres from a target's middle within which an object counts as placed on it."""
PULLED = 0.015
"""Metres from open, or from shut, that a drawer may be and counts as it."""


@dataclass(frozen=True)
class Situation:
    """The state that rewards and experts depend on."""

    tool: Vector
    object: Vector
    """The middle of the object that is asked for, or of the drawer's handle."""
    target: Vector
    """On the table, the middle of the target that is asked for, or of the handle once the drawer is open or shut."""
    rest: float
    """Height of the object's middle when it lies on the table."""
    held: bool
    """Both fingers touch the object."""
    touched: bool
    """At least one finger does."""
    support: float = STAND_HEIGHT
    """Height of the target's top."""
    room: float = ON_STAND
    """Metres from the target's middle within which an object counts as placed on it."""
    misaligned: float = 0.0
    """Radians that the hand must turn by for its fingers to close across the object; 0 where it can't turn."""


def progress(task: str, now: Situation) -> float:
    """How far the task has come, from 0 to 1; 1 if and only if it is done."""
    if succeeded(task, now):
        return 1.0
    if task == "reach":
        return 0.95 * _near(now.object + ABOVE - now.tool, 0.15)
    if task == "push":
        return _push_progress(now)
    return _drawer_progress(now) if task.endswith("drawer") else _pick_progress(now)


def succeeded(task: str, now: Situation) -> bool:
    """Whether the task is done."""
    if task == "reach":
        return bool(np.linalg.norm(now.object + ABOVE - now.tool) < REACHED)
    if task == "push":
        return _apart(now) < MARKED
    if task.endswith("drawer"):
        return _apart(now) < PULLED
    return placed(now) and not now.touched


def placed(now: Situation) -> bool:
    """Whether the object lies on top of the target."""
    height = now.object[2] - now.rest - now.support
    return bool(_apart(now) < now.room and abs(height) < STEADY)


def behind(now: Situation) -> Vector:
    """Where the tool begins a push: at the object's side that faces away from the target, low above the table."""
    away = now.object[:2] - now.target[:2]
    spot = now.object[:2] + BEHIND * away / max(float(np.linalg.norm(away)), 1e-6)
    return np.array([*spot, 0.015])


def _push_progress(now: Situation) -> float:
    return 0.25 * _near(behind(now) - now.tool, 0.15) + 0.65 * _near(np.array([_apart(now)]), 0.15)


def _pick_progress(now: Situation) -> float:
    """Near the object, held, lifted to the target's height, above it, lowered, put down: each adds its share."""
    if placed(now):
        return 0.9
    reached = 0.25 * _near(now.object - now.tool, 0.15) * (1 - 0.3 * min(abs(now.misaligned), 1.0))
    if not now.held:
        return reached
    height = float(now.object[2]) - now.rest
    lifted = min(max(height / now.support, 0.0), 1.0)
    lowered = min(max(1 - (height - now.support) / CLEARANCE, 0.0), 1.0)
    over = lifted * _near(np.array([_apart(now)]), 0.15)
    return reached + 0.1 + 0.15 * lifted + 0.25 * over + 0.1 * over * lowered


def _drawer_progress(now: Situation) -> float:
    """Near the handle, and how far the drawer came: each adds its share."""
    return 0.25 * _near(now.object - now.tool, 0.15) + 0.7 * min(max(1 - _apart(now) / TRAVEL, 0.0), 1.0)


def _apart(now: Situation) -> float:
    return float(np.linalg.norm(now.object[:2] - now.target[:2]))


def _near(gap: Vector, scale: float) -> float:
    """1 where the gap is nil, falling with its length."""
    return float(1 - np.tanh(np.linalg.norm(gap) / scale))
