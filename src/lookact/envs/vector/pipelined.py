"""Worlds in two halves that take turns: while a policy makes up its mind about one, the other steps.

Which rows a half holds depends on nothing but how many there are, so that a rollout comes out the same however many
processes simulate it.
"""

from __future__ import annotations

from typing import Any

from lookact.envs.vector.vector_env import VectorEnv
from lookact.envs.vector.worker import MakeEnv


class PipelinedVectorEnv:
    """`rows` environments in about `workers` processes, at least one for each half."""

    def __init__(self, make_env: MakeEnv, rows: int, *, workers: int, **watch: Any) -> None:
        """`watch` is what a `VectorEnv` is told beside: how long to wait, and how often to start a worker again."""
        first = rows - rows // 2
        halves = {0: first, first: rows // 2} if rows > 1 else {0: 1}
        self.rows = rows
        self.parts = tuple(
            VectorEnv(make_env, count, workers=min(count, max(1, workers // 2)), first=start, **watch)
            for start, count in halves.items()
        )
        self.observation_space, self.action_space = self.parts[0].observation_space, self.parts[0].action_space

    @property
    def restarts(self) -> int:
        """How often a worker was started again."""
        return sum(part.restarts for part in self.parts)

    def close(self) -> None:
        for part in self.parts:
            part.close()
