"""What the walking environments share at their Gymnasium side: spaces, and the seeds of an episode.

Gymnasium 1.4's AsyncVectorEnv reads texts out of shared memory once and never again, so the text of an observation
is in its info as well, and `observe` takes it from there.
"""

from __future__ import annotations

import string
from collections.abc import Mapping
from typing import Any

import gymnasium
import numpy as np
from gymnasium import spaces

from lookact.seeding import derive

Shown = dict[str, Any]
Reply = str | Mapping[str, Any]

PRINTABLE = string.printable + "²°–—’“”…"
"""Characters that spaces declare; a reply with others is read all the same."""


def observation_space(image_size: int, *, text: str, length: int) -> spaces.Dict:
    """Colour, depth, pose, and a text of at most `length` characters under the name `text`."""
    shape = (image_size, image_size)
    return spaces.Dict(
        {
            "rgb": spaces.Box(0, 255, (*shape, 3), np.uint8),
            "depth": spaces.Box(0.0, np.inf, shape, np.float32),
            "pose": spaces.Box(-np.inf, np.inf, (4,), np.float32),
            text: spaces.Text(length, charset=PRINTABLE),
        }
    )


def reply_space() -> spaces.Text:
    """A chat reply goes in as it is."""
    return spaces.Text(4096, min_length=0, charset=PRINTABLE)


def episode_seeds(env: gymnasium.Env[Any, Any], seed: int | None, options: Mapping[str, Any] | None) -> tuple[int, int]:
    """Seeds of the scene and of the start: from `options`, else from `seed`, else from the environment's own stream."""
    base = int(env.np_random.integers(2**62)) if seed is None else seed
    chosen = options or {}
    return (
        int(chosen.get("scene_seed", derive(base, "scene"))),
        int(chosen.get("start_seed", derive(base, "start"))),
    )


def feedback(info: Mapping[str, Any]) -> str:
    """How the last move went, in one word."""
    if not info["valid_action"]:
        return "Invalid."
    return "Blocked." if info["collided"] else "Moved."
