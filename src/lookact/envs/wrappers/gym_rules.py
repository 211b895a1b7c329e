"""Gymnasium's rules, held to at every step of an environment that others wrote: what breaks one is an EnvError."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

import gymnasium
import numpy as np
from gymnasium import spaces
from numpy.typing import NDArray

from lookact.errors import EnvError

GymEnv = gymnasium.Env[Any, Any]
SLACK = 1e-3
"""How far a number may lie outside of its bounds, by rounding."""


def checked_reset(env: GymEnv, **how: Any) -> tuple[Any, dict[str, Any]]:
    """`env.reset(**how)`, if it gives an observation and an info."""
    begun: Any = env.reset(**how)
    if not isinstance(begun, tuple) or len(begun) != 2 or not isinstance(begun[1], Mapping):
        raise EnvError(f"{name_of(env)}.reset() gave {_kind(begun)}: return (observation, info), info a dict")
    return begun[0], dict(begun[1])


def checked_step(env: GymEnv, action: Any) -> tuple[Any, float, bool, bool, dict[str, Any]]:
    """`env.step(action)`, if it gives all five parts and a finite reward."""
    taken: Any = env.step(action)
    if not isinstance(taken, tuple) or len(taken) != 5 or not isinstance(taken[4], Mapping):
        wanted = "return (observation, reward, terminated, truncated, info), info a dict"
        raise EnvError(f"{name_of(env)}.step() gave {_kind(taken)}: {wanted}")
    shown, reward, terminated, truncated, info = taken
    try:
        paid = float(reward)
    except (TypeError, ValueError):
        paid = math.nan
    if not math.isfinite(paid):
        raise EnvError(f"{name_of(env)}.step() gave the reward {reward!r}: give a finite number")
    return shown, paid, bool(terminated), bool(truncated), dict(info)


def checked_array(value: Any, box: spaces.Box, name: str, *, bounds: bool = False) -> NDArray[Any]:
    """A part of an observation as its space has it: shape, finite numbers and, with `bounds`, nothing outside."""
    try:
        array: NDArray[Any] = np.asarray(value, dtype=box.dtype)
    except (TypeError, ValueError):
        raise EnvError(f"{name} holds {_kind(value)}: its space is {box}; return an array") from None
    if array.shape != box.shape:
        raise EnvError(f"{name} has shape {array.shape}, its space {box.shape}: make them agree")
    if not np.isfinite(array).all():
        raise EnvError(f"{name} holds numbers that are not finite: mend the environment")
    if bounds and ((array < box.low - SLACK) | (array > box.high + SLACK)).any():
        low, high = float(box.low.min()), float(box.high.max())
        raise EnvError(
            f"{name} lies in {float(array.min()):g} to {float(array.max()):g}, its space in {low:g} to {high:g}: "
            "widen the space"
        )
    return array


def name_of(env: GymEnv) -> str:
    """What to call an environment in a message."""
    return env.spec.id if env.spec is not None else type(env.unwrapped).__name__


def _kind(value: Any) -> str:
    return f"{len(value)} values" if isinstance(value, tuple) else f"a {type(value).__name__}"
