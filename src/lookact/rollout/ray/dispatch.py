"""Which plans wait, which run where, and which came back: every plan comes back exactly once.

Plans are handed out in chunks that are cut by their order alone. A chunk is one batch of an engine, so that an
episode's numbers are the same to the last bit whichever worker runs its chunk, and however many workers there are.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass

from lookact.errors import EngineError, StaleWeights
from lookact.types import Episode, EpisodeSpec


@dataclass(frozen=True)
class Chunk:
    """Plans that one worker runs side by side."""

    index: int
    plans: tuple[EpisodeSpec, ...]
    again: bool = False
    """It was lost once with a worker."""


class Dispatch:
    """The book of one step's plans."""

    def __init__(self, plans: Sequence[EpisodeSpec], *, chunk: int, version: int) -> None:
        if len({plan.id for plan in plans}) < len(plans):
            raise EngineError("two plans have one id: they could not be told apart when they come back")
        self.version = version
        self.waiting = deque(
            Chunk(index, tuple(plans[start : start + chunk])) for index, start in enumerate(range(0, len(plans), chunk))
        )
        self.running: dict[int, Chunk] = {}
        """By worker."""
        self.lost_chunks = 0
        self._chunks = len(self.waiting)
        self._episodes: dict[int, list[Episode]] = {}

    @property
    def done(self) -> bool:
        return len(self._episodes) == self._chunks

    def hand_out(self, worker: int) -> Chunk | None:
        """The next chunk, now the worker's; None if none waits."""
        if worker in self.running:
            raise EngineError(f"worker {worker} was handed a chunk before it gave back its last")
        if not self.waiting:
            return None
        self.running[worker] = self.waiting.popleft()
        return self.running[worker]

    def take_back(self, worker: int, episodes: Sequence[Episode]) -> None:
        """What became of the worker's chunk; other plans or other weights than were asked for are refused."""
        chunk = self.running.pop(worker)
        if [episode.id for episode in episodes] != [plan.id for plan in chunk.plans]:
            raise EngineError(f"worker {worker} ran {[e.id for e in episodes]}, not {[p.id for p in chunk.plans]}")
        for episode in episodes:
            if episode.policy_version != self.version:
                raise StaleWeights(
                    f"episode {episode.id} was run with weights of version {episode.policy_version}, "
                    f"not {self.version}: worker {worker} was not given the newest"
                )
        self._episodes[chunk.index] = list(episodes)

    def lose(self, worker: int, reason: str) -> None:
        """The worker is gone. Its chunk is the next to be handed out again; lost twice, its episodes have failed."""
        chunk = self.running.pop(worker, None)
        if chunk is None:
            return
        self.lost_chunks += 1
        if not chunk.again:
            self.waiting.appendleft(Chunk(chunk.index, chunk.plans, again=True))
            return
        # what ends two workers would end a third: a bad rollout is data
        self._episodes[chunk.index] = [
            Episode(plan.id, plan.group, plan.seed, (), policy_version=self.version, error=f"EngineError: {reason}")
            for plan in chunk.plans
        ]

    def episodes(self) -> list[Episode]:
        """All of them, in the order of their plans."""
        return [episode for index in range(self._chunks) for episode in self._episodes[index]]
