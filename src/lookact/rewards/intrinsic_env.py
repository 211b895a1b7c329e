"""Intrinsic reward as a Gymnasium wrapper: any learner's loop is paid for what a frozen world model predicts badly.

Step by step it pays what `sequence_rewards` pays for whole episodes, but for novelty, whose neighbours are the last
positions seen here instead of a batch's.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

import gymnasium
import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from lookact.batch import ControlInputs
from lookact.errors import ConfigError, EnvError
from lookact.models.world_model.explorer import Explorer
from lookact.models.world_model.model import WorldModel, WorldModelInputs
from lookact.rewards.intrinsic import IntrinsicRewards, RewardScale, UncertaintyKind, intrinsic_rewards, uncertainty

POSITIONS = 768
"""Last positions that novelty is measured against."""
TOOL = slice(8, 11)
"""Indices of the tool's position in the tabletop's state."""


@dataclass(frozen=True)
class IntrinsicWeights:
    """Weights of the terms, and of the environment's own reward."""

    memory: float = 0.1
    uncertainty: float = 1.0
    novelty: float = 0.2
    task: float = 0.0


class IntrinsicReward(gymnasium.Wrapper[Any, NDArray[np.float32], Any, NDArray[np.float32]]):
    """Observations need the tabletop's `wrist`, `state` and `instruction`; `info["intrinsic"]` has the weighted terms.

    `scale` holds each term's mean under random actions; None: the terms as they are. Learning progress needs `older`,
    the world model that it is measured against.
    """

    def __init__(
        self,
        env: gymnasium.Env[Any, NDArray[np.float32]],
        world_model: WorldModel,
        *,
        weights: IntrinsicWeights = IntrinsicWeights(),  # noqa: B008
        kind: UncertaintyKind = "surprise",
        scale: RewardScale | None = None,
        stride: int = 1,
        position: slice | list[int] = TOOL,
        older: WorldModel | None = None,
    ) -> None:
        super().__init__(env)
        if (kind == "learning_progress") != (older is not None):
            raise ConfigError("give older, the world model that learning progress is measured against, for it alone")
        self.explorer, self.weights, self.kind = Explorer(world_model, stride=stride), weights, kind
        self.older = None if older is None else Explorer(older, stride=stride)
        self.scale, self.position = scale or RewardScale(), position
        self._positions: deque[Tensor] = deque(maxlen=POSITIONS)
        self._inputs: ControlInputs | None = None
        self._observed: WorldModelInputs | None = None
        self._older_carry: Tensor | None = None
        self._older_observed: WorldModelInputs | None = None

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[Any, dict[str, Any]]:
        shown, info = self.env.reset(seed=seed, options=options)
        spec, text = self.explorer.spec, self.explorer.tokenize([str(shown["instruction"])])
        nothing = torch.zeros(1, spec.history, spec.action_size, device=self.explorer.device)
        carry = self._older_carry = self.explorer.start_carry(1)
        self._observe(ControlInputs(nothing[:, 0], *self._look(shown), text.to(nothing.device), nothing, carry))
        return shown, info

    def step(self, action: NDArray[np.float32]) -> tuple[Any, float, bool, bool, dict[str, Any]]:
        shown, reward, terminated, truncated, info = self.env.step(action)
        weights = self.weights.memory, self.weights.uncertainty, self.weights.novelty
        terms = self.scale.weighted(self._terms(np.clip(action, -1.0, 1.0), shown), weights)
        paid = {name: float(getattr(terms, name)) for name in ("divergence", "uncertainty", "novelty")}
        total = self.weights.task * float(reward) + sum(paid.values())
        return shown, total, terminated, truncated, info | {"intrinsic": paid, "task_reward": float(reward)}

    @torch.no_grad()
    def _terms(self, action: NDArray[np.float32], shown: Mapping[str, Any]) -> IntrinsicRewards:
        """The terms of the step from the observation before to `shown`."""
        model, before, inputs = self.explorer.model, self._observed, self._inputs
        if before is None or inputs is None:
            raise EnvError("no episode has begun: call reset before the first step")
        done = torch.from_numpy(np.asarray(action, np.float32))[None].to(self.explorer.device)
        state, images = self._look(shown)
        ids = images["wrist"]
        logits = model.predict(before, model.pad(done), ids)
        expected = model.vq.expected(logits.softmax(dim=-1).flatten(0, 1)).reshape(len(logits), 1, -1)
        older = None
        if self.older is not None and self._older_observed is not None:
            older = self.older.model.predict(self._older_observed, model.pad(done), ids)
        unsure = uncertainty(logits, expected, ids, kind=self.kind, older=older)
        history = torch.cat([inputs.history[:, 1:], done[:, None]], dim=1)
        after = self._observe(replace(inputs, state=state, images=images, history=history))
        self._positions.append(state[0, self.position])
        terms = intrinsic_rewards(before.memory, after.memory, torch.stack([*self._positions]), unsure)
        return replace(terms, novelty=terms.novelty[-1:])

    def _observe(self, inputs: ControlInputs) -> WorldModelInputs:
        if self.older is not None:
            self._older_observed, self._older_carry = self.older.observe(replace(inputs, carry=self._older_carry))
        self._observed, carry = self.explorer.observe(inputs)
        self._inputs = replace(inputs, carry=carry)
        return self._observed

    def _look(self, shown: Mapping[str, Any]) -> tuple[Tensor, dict[str, Tensor]]:
        """State (1, s) and the wrist frame's ids."""
        state = torch.from_numpy(np.asarray(shown["state"], np.float32))[None].to(self.explorer.device)
        frame = torch.from_numpy(np.asarray(shown["wrist"]))[None].to(self.explorer.device)
        return state, {"wrist": self.explorer.model.vq.encode(frame)}
