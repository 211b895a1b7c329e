"""Steps of control policies as episodes to be looked at: nothing is kept to score them again."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

from lookact.types import Decision, Observation, Turn


def control_turn(
    seen: Observation,
    action: NDArray[np.float32],
    reward: float,
    *,
    terminated: bool = False,
    truncated: bool = False,
    info: Mapping[str, Any] | None = None,
) -> Turn:
    """What was seen, the action (a,) that was taken on it, and what came of it."""
    no_units = np.zeros(0, dtype=np.float32)
    decision = Decision(np.array(action, dtype=np.float32), no_units, no_units.astype(bool))
    return Turn(seen, decision, float(reward), bool(terminated), bool(truncated), info or {})


def table_observation(shown: Mapping[str, Any]) -> Observation:
    """What a table shows, copied: cameras are its pictures, in their order."""
    images = {name: np.array(array) for name, array in shown.items() if getattr(array, "ndim", 0) == 3}
    return Observation(str(shown.get("instruction", "")), images, state=np.array(shown["state"], dtype=np.float32))
