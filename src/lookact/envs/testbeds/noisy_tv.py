"""Noisy-TV testbed (arXiv:1808.04355): a patch of pure noise in the wrist image while the arm reaches to one side.

Noise can't be predicted or learned: an explorer rewarded for plain uncertainty stays in front of it.
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
"""Index of the tool's lateral position in the state."""
NOISE_FROM = 0.05
"""Lateral position, in metres, from which the noise is in view."""


class NoisyTV(gymnasium.Env[Shown, NDArray[np.float32]]):
    """The tabletop with noise in the upper left quarter of the wrist image while `noise_in_view`."""

    def __init__(self, table: Tabletop) -> None:
        self.table = table
        self.observation_space, self.action_space = table.observation_space, table.action_space
        self._noise = np.random.default_rng(0)

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[Shown, dict[str, Any]]:
        super().reset(seed=seed)
        shown, info = self.table.reset(seed=seed, options=options)
        self._noise = numpy_rng(derive(int(self.np_random.integers(2**62)) if seed is None else seed, "noise"))
        return self._add_noise(shown), info

    def step(self, action: NDArray[np.float32]) -> tuple[Shown, float, bool, bool, dict[str, Any]]:
        shown, reward, terminated, truncated, info = self.table.step(action)
        return self._add_noise(shown), reward, terminated, truncated, info

    def close(self) -> None:
        self.table.close()

    def _add_noise(self, shown: Shown) -> Shown:
        if not noise_in_view(shown["state"]):
            return shown
        frame = shown["wrist"].copy()
        half = len(frame) // 2
        frame[:half, :half] = self._noise.integers(0, 256, (half, half, 3), np.uint8)
        return shown | {"wrist": frame}


def noise_in_view(state: NDArray[np.float32]) -> Any:
    """Whether noise is in view, for states (..., s)."""
    return state[..., TOOL_SIDE] > NOISE_FROM


def noisy_table(**settings: Any) -> NoisyTV:
    """The testbed around a tabletop of these settings."""
    return NoisyTV(Tabletop(**settings))
