"""A control for curiosity: where the arm reaches to one side, a patch of pure noise comes into its wrist's view.

Noise can't be foretold, and there is nothing in it to learn: an explorer that is paid for plain uncertainty will stay
and watch.
"""

from __future__ import annotations

from typing import Any

import gymnasium
import numpy as np
from numpy.typing import NDArray

from lookact.envs.rooms.interface import Shown
from lookact.envs.tabletop.env import Tabletop
from lookact.seeding import derive, numpy_rng

TOOL_SIDE = 9
"""Where in the table's state the tool's sideways position stands."""
BEYOND = 0.05
"""Metres to the side from where the noise is seen."""


class NoisyTV(gymnasium.Env[Shown, NDArray[np.float32]]):
    """The table, with noise in the upper left quarter of the wrist's picture while `noise_seen` is so."""

    def __init__(self, table: Tabletop) -> None:
        self.table = table
        self.observation_space, self.action_space = table.observation_space, table.action_space
        self._noise = np.random.default_rng(0)

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[Shown, dict[str, Any]]:
        super().reset(seed=seed)
        shown, info = self.table.reset(seed=seed, options=options)
        self._noise = numpy_rng(derive(int(self.np_random.integers(2**62)) if seed is None else seed, "noise"))
        return self._disturbed(shown), info

    def step(self, action: NDArray[np.float32]) -> tuple[Shown, float, bool, bool, dict[str, Any]]:
        shown, reward, terminated, truncated, info = self.table.step(action)
        return self._disturbed(shown), reward, terminated, truncated, info

    def close(self) -> None:
        self.table.close()

    def _disturbed(self, shown: Shown) -> Shown:
        if not noise_seen(shown["state"]):
            return shown
        frame = shown["wrist"].copy()
        half = len(frame) // 2
        frame[:half, :half] = self._noise.integers(0, 256, (half, half, 3), np.uint8)
        return shown | {"wrist": frame}


def noise_seen(state: NDArray[np.float32]) -> Any:
    """Whether noise is in view, for states (..., s)."""
    return state[..., TOOL_SIDE] > BEYOND
