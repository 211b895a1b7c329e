"""Requests waiting for the model: a bounded line that is served in batches and that clients can leave."""

from __future__ import annotations

import asyncio
import math
from collections import deque
from dataclasses import dataclass

from lookact.judges.server.limits import Limits, Refused
from lookact.judges.server.records import Prompt, Reply

LONGEST_WAIT = 10
"""Moments after which a batch begins, even if others still join."""


@dataclass(eq=False)
class Job:
    """A prompt and the promise of its reply. Whoever stops waiting marks it dropped."""

    prompt: Prompt
    future: asyncio.Future[Reply]
    dropped: bool = False


class JobQueue:
    """First come, first served; for the event loop's thread only."""

    def __init__(self, limits: Limits) -> None:
        self.limits = limits
        self.batch_seconds = 0.5
        """What a batch took of late: tells clients when to come back."""
        self._waiting: deque[Job] = deque()
        self._changed = asyncio.Event()

    def __len__(self) -> int:
        return len(self._waiting)

    def check(self) -> None:
        """Raises if one more would be too many."""
        if len(self) >= self.limits.queue:
            batches = 1 + len(self) / self.limits.batch
            raise Refused(
                429,
                f"{len(self)} requests are waiting: try again later",
                retry_after=max(1, math.ceil(batches * self.batch_seconds)),
            )

    def put(self, prompt: Prompt) -> Job:
        """Stand in line; raises where it is full."""
        self.check()
        job = Job(prompt, asyncio.get_running_loop().create_future())
        self._waiting.append(job)
        self._changed.set()
        return job

    def drop(self, job: Job) -> None:
        """Leave the line, or tell the model not to go on."""
        job.dropped = True
        if job in self._waiting:
            self._waiting.remove(job)

    async def take(self) -> list[Job]:
        """The next batch: waits for a first request, then until for a moment no other has joined it."""
        while not self._waiting:
            await self._change()
        clock, wait = asyncio.get_running_loop().time, self.limits.batch_wait
        latest = clock() + LONGEST_WAIT * wait
        try:
            while len(self._waiting) < self.limits.batch:
                async with asyncio.timeout_at(min(clock() + wait, latest)):
                    await self._change()
        except TimeoutError:
            pass
        return [self._waiting.popleft() for _ in range(min(len(self._waiting), self.limits.batch))]

    async def _change(self) -> None:
        self._changed.clear()
        await self._changed.wait()
