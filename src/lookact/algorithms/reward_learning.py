"""Fitting a reward ensemble to preferences (arXiv:1706.03741): Bradley-Terry, until it agrees with enough of them."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import torch
from torch import Tensor

from lookact.data.preferences import PreferenceStore
from lookact.errors import DataError
from lookact.models.reward_model import RewardModel, segment_rewards
from lookact.ops.preference import bradley_terry
from lookact.seeding import numpy_rng
from lookact.training.optim import NonFiniteGuard, clip_and_step


class RewardLearner:
    """A reward ensemble and its optimiser; a Stateful, the weights aside."""

    def __init__(self, model: RewardModel, *, lr: float = 3e-4, weight_decay: float = 0.0) -> None:
        self.model, self.fits = model, 0
        self.optimizer = torch.optim.AdamW(model.parameters(), lr=lr, weight_decay=weight_decay, fused=True)
        self.guard = NonFiniteGuard()

    def fit(
        self, store: PreferenceStore, *, epochs: int, rows: int, enough: float, seed: int, bootstrap: bool = False
    ) -> dict[str, float]:
        """Up to `epochs` passes, `rows` pairs at a time; ends after a pass in which the accuracy was `enough`.

        Every member goes through the pairs in an order of its own, or through a draw of its own with replacement.
        """
        if not len(store):
            raise DataError("no preference to learn from: the judge has answered nothing but -1")
        self.fits += 1
        metrics: dict[str, float] = {}
        for epoch in range(1, epochs + 1):
            order = orders(self.model.members, len(store), numpy_rng(seed, "reward", self.fits, epoch), bootstrap)
            sums = np.zeros(3)
            for part in torch.split(order, rows, dim=1):
                sums += np.array(self._step(store, part)) * part.shape[1] / len(store)
            metrics = {
                "loss/reward": sums[0],
                "reward/accuracy": sums[1],
                "reward/gap": sums[2],
                "reward/epochs": epoch,
            }
            if metrics["reward/accuracy"] >= enough:
                break
        return {name: float(value) for name, value in metrics.items()}

    def state_dict(self) -> dict[str, Any]:
        return {"fits": self.fits, "optimizer": self.optimizer.state_dict(), "guard": self.guard.state_dict()}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        self.fits = state["fits"]
        self.optimizer.load_state_dict(state["optimizer"])
        self.guard.load_state_dict(state["guard"])

    def _step(self, store: PreferenceStore, chosen: Tensor) -> tuple[float, float, float]:
        """Loss, accuracy and gap on pairs (members, n) of the store."""
        first, second = (segment_rewards(self.model, side[chosen]) for side in (store.first, store.second))
        loss, metrics = bradley_terry(first, second, store.labels[chosen].to(first.device))
        loss.backward()  # type: ignore[no-untyped-call]
        clip_and_step(
            self.optimizer, self.model.parameters(), max_norm=10.0, guard=self.guard, loss=float(loss.detach())
        )
        return float(loss.detach()), float(metrics["accuracy"]), float(metrics["reward_gap"])


def orders(members: int, pairs: int, rng: np.random.Generator, bootstrap: bool) -> Tensor:
    """(members, pairs) which pair each member meets when."""
    if bootstrap:
        return torch.from_numpy(rng.integers(pairs, size=(members, pairs)))
    return torch.from_numpy(np.stack([rng.permutation(pairs) for _ in range(members)]))
