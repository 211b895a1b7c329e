"""Requests waiting for the model: a bounded queue, and the one thread that answers it in batches."""

from __future__ import annotations

import asyncio
import logging
import math
import time
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import Literal

from lookact.errors import EngineError
from lookact.serving.limits import Limits, Refused
from lookact.serving.metrics import Metrics
from lookact.types import Image

log = logging.getLogger(__name__)

LONGEST_WAIT, EXPECTED_WAIT = 10, 4
"""Moments after which a batch begins, even if others still join; and moments without one more after which those who
were here a batch ago are no longer waited for."""
MODEL_METRICS = {
    "prompt_tokens_total": ("counter", "tokens read"),
    "completion_tokens_total": ("counter", "tokens written"),
    "images_total": ("counter", "images decoded"),
    "batches_total": ("counter", "batches run"),
    "batch_rows_total": ("counter", "requests run in batches"),
    "batch_seconds_total": ("counter", "seconds the model was busy"),
    "queue_waiting": ("gauge", "requests waiting"),
}


@dataclass(frozen=True)
class Message:
    """One message of a conversation: texts and images in their order."""

    role: Literal["system", "user", "assistant"]
    parts: tuple[str | Image, ...]


@dataclass(frozen=True)
class Prompt:
    """A conversation to answer. At temperature 0 the reply is greedy and depends on nothing else."""

    messages: tuple[Message, ...]
    max_tokens: int
    temperature: float = 0.0
    top_p: float = 0.9
    seed: int = 0
    """Of the draws above temperature 0."""
    top_logprobs: int | None = None
    """How many of the likeliest tokens are told at each place, beside the one that was taken; None: nothing."""
    stop: tuple[str, ...] = ()
    """A reply ends before the first of these."""
    streamed: bool = False
    """The reply is given in parts, too."""


@dataclass(frozen=True)
class TokenLogprob:
    """A token of a reply with its log-probability, and the likeliest at its place."""

    token: str
    logprob: float
    top: tuple[tuple[str, float], ...] = ()


@dataclass(frozen=True)
class Reply:
    """What the model said, or why it could not be asked."""

    text: str = ""
    prompt_tokens: int = 0
    completion_tokens: int = 0
    finish: Literal["stop", "length", ""] = "stop"
    """Empty in a part of a streamed reply, whose text is all there is so far."""
    error: str = ""
    """The fault of the prompt, in one line; empty where the model answered."""
    logprobs: tuple[TokenLogprob, ...] = ()
    """Of each token, where they were asked for."""


Generate = Callable[[Sequence[Prompt], Callable[[int], bool]], Iterator[tuple[int, Reply]]]
"""Answers a batch: yields the index and reply of each prompt as soon as it is finished.

The second argument tells of a prompt whether nobody waits for it any more; it may then go unanswered.
"""


@dataclass(eq=False)
class Job:
    """A prompt and the promise of its reply. Whoever stops waiting marks it dropped."""

    prompt: Prompt
    future: asyncio.Future[Reply]
    parts: asyncio.Queue[Reply | EngineError] | None = None
    """Takes a streamed reply's parts in place of the promise, the whole of it last."""
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
                self.metrics.add("batches_total")
                self.metrics.add("batch_rows_total", len(jobs))
                self.metrics.add("batch_seconds_total", seconds)
        finally:
            self._thread.shutdown(wait=False, cancel_futures=True)

    def _answer(self, jobs: Sequence[Job], loop: asyncio.AbstractEventLoop) -> None:
        answered: set[int] = set()
        try:
            for index, reply in self.generate([job.prompt for job in jobs], lambda i: jobs[i].dropped):
                if reply.finish:
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
    if job.parts is not None:
        job.parts.put_nowait(outcome)
    elif isinstance(outcome, EngineError):
        job.future.set_exception(outcome)
    else:
        job.future.set_result(outcome)
