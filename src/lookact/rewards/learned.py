"""The reward an agent learns from when the true one is out of reach: the mean of a learned ensemble, at unit scale."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from lookact.data.replay import Feature, Replay, Slots
from lookact.models.reward_model import RewardModel

Floats = NDArray[np.float32]


WORST, BEST = 0.01, 0.999
"""Quantiles of a replay's rewards between which a peaked reward rises."""


class LearnedReward:
    """Rewards of slots. Preferences fix neither zero nor unit: `settle` makes mean 0 and deviation 1 over a replay.

    With a `peak` k they are exp(k · (level - 1)) instead, with levels from 0 for the worst of the replay to 1 for the
    best: preferences tell only the order, and a reward that rises evenly pays the good nearly as well as the best.
    """

    def __init__(self, model: RewardModel, kind: Feature, *, peak: float = 0.0, chunk: int = 1024) -> None:
        self.model, self.kind, self.peak, self.chunk = model, kind, peak, chunk
        self.shift, self.scale = 0.0, 1.0

    def __call__(self, slots: Slots) -> Floats:
        """(n,)"""
        return self.of(slots.features(self.kind))

    def of(self, features: NDArray[Any]) -> Floats:
        """(n,) of states (n, s) or frames (n, h, w, 3)."""
        levels = (self._raw(features) - self.shift) * self.scale
        # better than all before counts, but not without bounds
        paid = np.exp(self.peak * np.minimum(levels, 0.2)) if self.peak else levels
        return np.asarray(paid, dtype=np.float32)

    def settle(self, replay: Replay, *, most: int = 4096) -> dict[str, float]:
        """Fix zero and unit by the replay, up to `most` of its slots, evenly spread; then relabel all of it."""
        spread = np.linspace(0, len(replay) - 1, min(most, len(replay))).astype(np.int64)
        raw = self._raw(replay.slots(spread).features(self.kind))
        if self.peak:
            worst, best = np.quantile(raw, [WORST, BEST])
            self.shift, self.scale = float(best), 1.0 / max(float(best - worst), 1e-3)
        else:
            self.shift, self.scale = float(raw.mean()), 1.0 / max(float(raw.std()), 1e-3)
        replay.relabel(self)
        return {"reward/mean": float(raw.mean()), "reward/deviation": float(raw.std())}

    def state_dict(self) -> dict[str, float]:
        return {"shift": self.shift, "scale": self.scale}

    def load_state_dict(self, state: dict[str, float]) -> None:
        self.shift, self.scale = state["shift"], state["scale"]

    @torch.no_grad()
    def _raw(self, features: NDArray[Any]) -> Floats:
        parts = torch.split(torch.from_numpy(np.ascontiguousarray(features)), self.chunk)
        rewards: Floats = (
            torch.cat([self.model(part.to(self.model.device)).mean(dim=0) for part in parts]).cpu().numpy()
        )
        return rewards
