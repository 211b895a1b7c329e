"""The reward an agent learns from when the true one is out of reach: the mean of a learned ensemble, at a set scale."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from lookact.data.replay import Feature, Replay, Slots
from lookact.models.reward_ensemble import RewardModel

Floats = NDArray[np.float32]


class LearnedReward:
    """Rewards of slots. Preferences fix neither zero nor unit: `settle` gives mean 0 and a deviation over a replay."""

    def __init__(self, model: RewardModel, kind: Feature, *, deviation: float = 1.0, chunk: int = 1024) -> None:
        self.model, self.kind, self.deviation, self.chunk = model, kind, deviation, chunk
        self.shift, self.scale = 0.0, 1.0

    def __call__(self, slots: Slots) -> Floats:
        """(n,)"""
        return self.of(slots.features(self.kind))

    def of(self, features: NDArray[Any]) -> Floats:
        """(n,) of states (n, s) or frames (n, h, w, 3)."""
        scaled: Floats = ((self._raw(features) - self.shift) * self.scale).astype(np.float32)
        return scaled

    def settle(self, replay: Replay, *, most: int = 4096) -> dict[str, float]:
        """Fix zero and unit by the replay, up to `most` of its slots, evenly spread; then relabel all of it."""
        spread = np.linspace(0, len(replay) - 1, min(most, len(replay))).astype(np.int64)
        raw = self._raw(replay.slots(spread).features(self.kind))
        self.shift, self.scale = float(raw.mean()), self.deviation / max(float(raw.std()), 1e-3)
        replay.relabel(self)
        return {"reward/mean": self.shift, "reward/deviation": float(raw.std())}

    def state_dict(self) -> dict[str, float]:
        return {"shift": self.shift, "scale": self.scale}

    def load_state_dict(self, state: dict[str, float]) -> None:
        self.shift, self.scale = state["shift"], state["scale"]

    @torch.no_grad()
    def _raw(self, features: NDArray[Any]) -> Floats:
        parts = torch.split(torch.from_numpy(np.ascontiguousarray(features)), self.chunk)
        rewards: Floats = torch.cat([self.model(part).mean(dim=0) for part in parts]).numpy()
        return rewards
