"""Hindsight experience replay of pushes (arXiv:1707.01495): where the object came to lie becomes what was asked for."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from lookact.envs.tabletop.env import Tabletop
from lookact.envs.tabletop.experts import Recording
from lookact.envs.tabletop.scene import TARGET_RADIUS

MOVED = 0.06
"""Metres that an object must have come, for its new place to be a goal."""


def relabel(env: Tabletop, seed: int, actions: Sequence[NDArray[np.float32]]) -> Recording | None:
    """The episode of a seed and these actions, done once more with the named mark where the object ended.

    A mark stops nothing, so that the same actions bring the object to the same place. An episode that succeeded is
    returned as it was. None where the object was not moved, or came to lie over another mark.
    """
    env.reset(seed=seed)
    begun = env.situation().object
    for action in actions:
        _, _, terminated, truncated, info = env.step(action)
        if terminated or truncated:
            break
    if info["success"]:
        return _again(env, seed, actions, None)
    place = env.situation().object[:2]
    others = env.start.targets[1:]
    near = any(np.linalg.norm(place - other) < 2 * TARGET_RADIUS for other in others)
    if np.linalg.norm(place - begun[:2]) < MOVED or near:
        return None
    return _again(env, seed, actions, (float(place[0]), float(place[1])))


def _again(
    env: Tabletop, seed: int, actions: Sequence[NDArray[np.float32]], place: tuple[float, float] | None
) -> Recording | None:
    shown, done = [], []
    seen, info = env.reset(seed=seed, options=None if place is None else {"target_place": place})
    for action in actions:
        shown.append(seen)
        done.append(action)
        seen, _, terminated, truncated, info = env.step(action)
        if terminated or truncated:
            break
    # the object may have passed over its last place earlier, but it must have come there
    return Recording(tuple(shown), np.stack(done), info) if info["success"] else None
