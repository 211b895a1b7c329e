"""Lets `rollout.collect` drive a Gymnasium environment whose observations are read by a chat model."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import gymnasium

from lookact.types import Observation

Observe = Callable[[Mapping[str, Any], Mapping[str, Any]], Observation]
"""Makes what an agent is shown from an environment's observation and info."""


@dataclass(frozen=True)
class ChatEnv:
    """The `Env` protocol over a Gymnasium environment: infos pass through as they are."""

    env: gymnasium.Env[Any, Any]
    observe: Observe

    def reset(self, *, seed: int, options: Mapping[str, Any]) -> tuple[Observation, Mapping[str, Any]]:
        shown, info = self.env.reset(seed=seed, options=dict(options))
        return self.observe(shown, info), info

    def step(self, action: Any) -> tuple[Observation, float, bool, bool, Mapping[str, Any]]:
        shown, reward, terminated, truncated, info = self.env.step(action)
        return self.observe(shown, info), float(reward), terminated, truncated, info

    def close(self) -> None:
        self.env.close()
