"""Scripted experts: from the true state, where the tool goes next."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from lookact.envs.rooms.interface import Shown
from lookact.envs.tabletop.drawers import ON_HANDLE
from lookact.envs.tabletop.env import Tabletop
from lookact.envs.tabletop.orientation import Vector
from lookact.envs.tabletop.tasks import ABOVE, BEHIND, Situation, behind, placed
from lookact.seeding import numpy_rng

HOVER = 0.07
"""Metres above an object's middle where the fingers are clear of it."""
ALIGNED = 0.012
CARRY = 0.03
"""Metres above the stand's height where an object is carried."""
OPEN, CLOSED = 1.0, 0.0


@dataclass(frozen=True)
class Recording:
    """What an expert saw and would do."""

    shown: tuple[Shown, ...]
    """Before each action."""
    actions: NDArray[np.float32]
    """(t, a) the expert's own, also where noise was executed on top."""
    info: Mapping[str, Any]
    """Of the last step."""


def record(
    env: Any,
    *,
    seed: int,
    noise: float = 0.0,
    options: dict[str, Any] | None = None,
    act: Callable[[Any], NDArray[np.float32]] | None = None,
) -> Recording:
    """One episode of the expert. With noise the arm is pushed off its way, and the expert shows how to come back.

    `act` is another's environment's expert.
    """
    rng = numpy_rng(seed, "noise")
    seen, info = env.reset(seed=seed, options=options)
    shown, actions, over = [], [], False
    while not over:
        action = expert_action(env) if act is None else act(env)
        shown.append(seen)
        actions.append(action)
        disturbed = np.clip(action + noise * rng.normal(size=action.shape), -1, 1).astype(np.float32)
        seen, _, terminated, truncated, info = env.step(disturbed)
        over = terminated or truncated
    return Recording(tuple(shown), np.stack(actions), info)


def expert_action(env: Tabletop) -> NDArray[np.float32]:
    """The expert's action (a,) in the environment's present state and control mode."""
    now = env.situation()
    goal, opening = EXPERTS[env.task](now)
    return env.controller.action_towards(goal, opening, now.misaligned)


def _reach(now: Situation) -> tuple[Vector, float]:
    return now.object + ABOVE, OPEN


def _push(now: Situation) -> tuple[Vector, float]:
    """Get behind the object without touching it, then go through it towards the target."""
    way = (now.target - now.object)[:2]
    way = way / max(float(np.linalg.norm(way)), 1e-6)
    offset = (now.tool - now.object)[:2]
    along, aside = float(offset @ way), float(abs(offset[0] * way[1] - offset[1] * way[0]))
    start = behind(now)
    if along < -0.02 and aside < ALIGNED and now.tool[2] < 0.04:
        return np.array([*(now.object[:2] - 0.01 * way), start[2]]), CLOSED
    if along < -BEHIND + 0.015 and aside < 2 * ALIGNED:
        return start, CLOSED
    # a detour around the object, high enough to pass over it
    return np.array([*start[:2], now.object[2] + HOVER]), CLOSED


def _pick_place(now: Situation) -> tuple[Vector, float]:
    if placed(now):
        return now.tool + np.array([0, 0, HOVER]) if not now.touched else now.tool, OPEN
    return _carry(now) if now.held else _grasp(now)


def _grasp(now: Situation) -> tuple[Vector, float]:
    """Come down on the object as on a funnel, then close."""
    aside = float(np.linalg.norm((now.object - now.tool)[:2]))
    grip = np.array([*now.object[:2], max(now.object[2] - 0.002, 0.014)])
    closing = aside < ALIGNED and abs(now.tool[2] - grip[2]) < 0.008
    # a hand that is yet to turn stays above the object, too
    funnel = max(_share(aside, 0.008, 0.035), _share(abs(now.misaligned), 0.1, 0.4))
    return grip + np.array([0, 0, HOVER * funnel]), CLOSED if closing else OPEN


def _carry(now: Situation) -> tuple[Vector, float]:
    """Lift, go towards the target, come down on it as on a funnel, let go."""
    aside = float(np.linalg.norm((now.target - now.object)[:2]))
    height = now.object[2] - now.rest - now.support
    # an object beside the target rises before it travels
    across = now.target if height > 0.008 or aside < 0.03 else now.object
    over = min(0.015, 0.5 * now.room)
    goal = np.array([*across[:2], now.rest + now.support + 0.001 + CARRY * _share(aside, over, 0.07)])
    return goal + now.tool - now.object, OPEN if aside < min(0.02, 0.6 * now.room) and height < 0.005 else CLOSED


def _open_drawer(now: Situation) -> tuple[Vector, float]:
    """Hold the handle from above and take it to where it is once the drawer is open."""
    grip = now.object + ON_HANDLE
    aside = float(np.linalg.norm((now.object - now.tool)[:2]))
    if aside < ALIGNED + 0.004 and abs(now.tool[2] - grip[2]) < 0.012:
        # a closed hand pulls, an open one first closes
        return np.array([*(now.target if now.held else now.object)[:2], grip[2]]), CLOSED
    return grip + np.array([0, 0, 0.05 * _share(aside, 0.008, 0.035)]), OPEN


def _close_drawer(now: Situation) -> tuple[Vector, float]:
    """Get before the handle with a closed hand, low enough to meet it, and push it home."""
    way = (now.target - now.object)[:2]
    way = way / max(float(np.linalg.norm(way)), 1e-6)
    offset = (now.tool - now.object)[:2]
    along, aside = float(offset @ way), float(abs(offset[0] * way[1] - offset[1] * way[0]))
    low = now.object[2] + ON_HANDLE[2]
    if along < -0.015 and aside < ALIGNED and now.tool[2] < low + 0.015:
        return np.array([*(now.target[:2] - 0.015 * way), low]), CLOSED
    start = np.array([*(now.object[:2] - 0.05 * way), low])
    if along < -0.03 and aside < 2 * ALIGNED:
        return start, CLOSED
    # over the handle, clear of it
    return start + np.array([0, 0, HOVER]), CLOSED


def _share(distance: float, low: float, high: float) -> float:
    """0 up to `low`, 1 from `high` on, straight between."""
    return min(max((distance - low) / (high - low), 0.0), 1.0)


EXPERTS: dict[str, Callable[[Situation], tuple[Vector, float]]] = {
    "reach": _reach,
    "push": _push,
    "pick_place": _pick_place,
    "stack": _pick_place,
    "open_drawer": _open_drawer,
    "close_drawer": _close_drawer,
}
