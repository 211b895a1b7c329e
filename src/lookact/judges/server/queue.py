"""Requests waiting for the model: a bounded line that is served in batches and that clients can leave."""

from __future__ import annotations

import asyncio
import math
from collections import deque
from dataclasses import dataclass

from lookact.judges.server.limits import Limits, Refused
from lookact.judges.server.records import Prompt, Reply

LONGEST_WAIT, EXPECTED_WAIT = 10, 4
"""Moments after which a batch begins, even if others still join; and moments without one more after which those who
were here a batch ago are no longer waited for."""


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
        self._answered = 0
        """How many the last batch answered."""

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
        """The next batch: waits for a first request, then until for a moment no other has joined it.

        Who was just answered is likely to ask again: a batch waits longer while it is smaller than the crowd.
        """
        crowd = min(self.limits.batch, self._answered + len(self._waiting))
        while not self._waiting:
            await self._change()
        clock, wait = asyncio.get_running_loop().time, self.limits.batch_wait
        latest = clock() + LONGEST_WAIT * wait
        try:
            while len(self._waiting) < self.limits.batch:
                moment = wait if len(self._waiting) >= crowd else EXPECTED_WAIT * wait
                async with asyncio.timeout_at(min(clock() + moment, latest)):
                    await self._change()
        except TimeoutError:
            pass
        self._answered = min(len(self._waiting), self.limits.batch)
        return [self._waiting.popleft() for _ in range(self._answered)]

    async def _change(self) -> None:
        self._changed.clear()
        await self._changed.wait()
