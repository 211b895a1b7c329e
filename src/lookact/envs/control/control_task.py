"""An environment to control, and how a recipe reads it."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from lookact.envs.wrappers.gym_chat import Success
from lookact.envs.wrappers.gym_rules import GymEnv

Expert = Callable[[Any, Any], NDArray[np.floating[Any]]]
"""From the environment and its present observation to an action within the environment's own bounds."""


@dataclass(frozen=True)
class ControlTask:
    """An environment to control: the instruction, the pictures that count, what success is, who demonstrates.

    Without them: the text of its observation, `info["instruction"]` or its name; all pictures of its observation, or
    else its render; `info["success"]` or `info["is_success"]`; and nobody.
    """

    make_env: Callable[[], GymEnv]
    instruction: str = ""
    cameras: tuple[str, ...] = ()
    success: Success | None = None
    expert: Expert | None = None
