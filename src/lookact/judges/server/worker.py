"""The one thread that runs the model: takes batches from the queue and hands out replies as they are finished."""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor

from lookact.errors import EngineError
from lookact.judges.server.metrics import Metrics
from lookact.judges.server.queue import Job, JobQueue
from lookact.judges.server.records import Generate, Reply

log = logging.getLogger(__name__)


class Worker:
    """Runs until cancelled. A batch that fails is tried again one request at a time: only the guilty one fails."""

    def __init__(self, generate: Generate, queue: JobQueue, metrics: Metrics) -> None:
        self.generate, self.queue, self.metrics = generate, queue, metrics
        self._thread = ThreadPoolExecutor(max_workers=1, thread_name_prefix="model")

    async def run(self) -> None:
        loop = asyncio.get_running_loop()
        try:
            while True:
                jobs = await self.queue.take()
                if not jobs:
                    continue
                start = time.monotonic()
                await loop.run_in_executor(self._thread, self._answer, jobs, loop)
                seconds = time.monotonic() - start
                self.queue.batch_seconds = 0.8 * self.queue.batch_seconds + 0.2 * seconds
                self.metrics.batch(len(jobs), seconds)
        finally:
            self._thread.shutdown(wait=False, cancel_futures=True)

    def _answer(self, jobs: Sequence[Job], loop: asyncio.AbstractEventLoop) -> None:
        answered: set[int] = set()
        try:
            for index, reply in self.generate([job.prompt for job in jobs], lambda i: jobs[i].dropped):
                answered.add(index)
                loop.call_soon_threadsafe(fulfil, jobs[index], reply)
            failure = "the model gave no reply"
        except Exception as error:
            # whatever the model raises must not end the thread that all others wait for
            failure = f"the model failed: {type(error).__name__}: {error}"
            log.exception("a batch of %d failed", len(jobs))
        left = [job for index, job in enumerate(jobs) if index not in answered and not job.dropped]
        if len(jobs) > 1:
            for job in left:
                self._answer([job], loop)
        elif left:
            loop.call_soon_threadsafe(fulfil, left[0], EngineError(failure))


def fulfil(job: Job, outcome: Reply | EngineError) -> None:
    """Keep the promise, unless nobody waits any more."""
    if job.future.done():
        return
    if isinstance(outcome, EngineError):
        job.future.set_exception(outcome)
    else:
        job.future.set_result(outcome)
