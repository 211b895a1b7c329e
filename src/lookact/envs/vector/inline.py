"""Environments side by side in this very process: for worlds so light that a message to another costs more."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

from lookact.envs.vector.vector_env import PlanEpisode, VectorObservation, VectorStep
from lookact.envs.vector.worker import MakeEnv, parts_of
from lookact.seeding import derive


class InlineVectorEnv:
    """`rows` environments that step one after another, with `VectorEnv`'s manners but nobody to watch over them."""

    restarts = 0

    def __init__(self, make_env: MakeEnv, rows: int, *, seed: int = 0, plan_episode: PlanEpisode | None = None) -> None:
        """`plan_episode` gives seeds and options; without it each row has its own stream under `seed`."""
        self.rows = rows
        self.plan_episode = plan_episode or (lambda row, episode: (derive(seed, "episode", row, episode), {}))
        self.episodes = [0] * rows
        """How many episodes each row has begun."""
        self.envs = [make_env() for _ in range(rows)]
        self.observation_space, self.action_space = self.envs[0].observation_space, self.envs[0].action_space
        boxes, self._names = parts_of(self.observation_space)
        self._shown = {name: np.zeros((rows, *box.shape), box.dtype) for name, box in boxes.items()}
        self._texts = {name: [""] * rows for name in self._names}
        self._actions = np.zeros((rows, *(self.action_space.shape or ())), np.float32)

    @property
    def parts(self) -> tuple[InlineVectorEnv]:
        """All rows step together."""
        return (self,)

    def reset(self, plan_episode: PlanEpisode | None = None) -> tuple[VectorObservation, tuple[dict[str, Any], ...]]:
        """Every row begins its next episode, or its first of another plan."""
        if plan_episode is not None:
            self.plan_episode, self.episodes = plan_episode, [0] * self.rows
        infos = tuple(self._begin(row) for row in range(self.rows))
        return self._observe(), infos

    def send(self, actions: NDArray[np.float32]) -> None:
        """Keep one action (rows, a) each until `receive`: there is nobody to begin before that."""
        self._actions = actions

    def receive(self) -> VectorStep:
        """The step that was asked for."""
        return self.step(self._actions)

    def step(self, actions: NDArray[np.float32]) -> VectorStep:
        """One action (rows, a) each."""
        rewards = np.zeros(self.rows, np.float32)
        terminated, truncated = np.zeros(self.rows, np.bool_), np.zeros(self.rows, np.bool_)
        infos: list[dict[str, Any]] = []
        finals: dict[int, dict[str, Any]] = {}
        for row, env in enumerate(self.envs):
            shown, reward, ended, cut, info = env.step(actions[row])
            rewards[row] = reward
            infos.append(info)
            if ended or cut:
                terminated[row], truncated[row] = ended, cut
                finals[row] = dict(_parts(shown))
                self._begin(row)
            else:
                self._write(row, shown)
        return VectorStep(self._observe(), rewards, terminated, truncated, tuple(infos), finals)

    def close(self) -> None:
        for env in self.envs:
            env.close()

    def _begin(self, row: int) -> dict[str, Any]:
        seed, options = self.plan_episode(row, self.episodes[row])
        self.episodes[row] += 1
        shown, info = self.envs[row].reset(seed=seed, options=dict(options))
        self._write(row, shown)
        return info

    def _write(self, row: int, shown: Any) -> None:
        parts = _parts(shown)
        for name, array in self._shown.items():
            array[row] = parts[name]
        for name in self._names:
            self._texts[name][row] = str(parts[name])

    def _observe(self) -> VectorObservation:
        arrays = {name: array.copy() for name, array in self._shown.items()}
        return VectorObservation(arrays, {name: tuple(texts) for name, texts in self._texts.items()})


def _parts(shown: Any) -> Mapping[str, Any]:
    return shown if isinstance(shown, dict) else {"state": shown}
