"""Takes a request in, waits for its reply, and gives up when nobody needs it any more."""

from __future__ import annotations

import asyncio
from typing import Any

from fastapi import Request
from starlette.concurrency import run_in_threadpool

from lookact.judges.server.limits import Budget, Limits, Refused
from lookact.judges.server.metrics import Metrics
from lookact.judges.server.prompts import decode_messages, decoded_bytes, make_prompt, open_messages, token_limit
from lookact.judges.server.queue import Job, JobQueue
from lookact.judges.server.records import Generate, Prompt, Reply
from lookact.judges.server.schema import ChatRequest, GenerateRequest
from lookact.judges.server.worker import Worker


class RequestHandler:
    """All that the routes share: the queue, the worker, the budget of memory and the metrics."""

    def __init__(self, generate: Generate, limits: Limits) -> None:
        self.limits, self.metrics = limits, Metrics()
        self.queue, self.budget = JobQueue(limits), Budget(limits.held_bytes)
        self.worker = Worker(generate, self.queue, self.metrics)
        self._decoding = asyncio.Semaphore(2)

    async def answer(self, body: GenerateRequest | ChatRequest, request: Request) -> Reply:
        """The model's reply; refuses what is too much before any pixel is decoded."""
        if token_limit(body) > self.limits.max_tokens:
            raise Refused(422, f"max_tokens {token_limit(body)}: ask for at most {self.limits.max_tokens}")
        self.queue.check()
        async with self._decoding:
            opened = await run_in_threadpool(open_messages, body.messages, self.limits)
        size = decoded_bytes(opened)
        self.budget.hold(size)
        try:
            async with self._decoding:
                messages = await run_in_threadpool(decode_messages, opened)
            self.metrics.add("images_total", sum(not isinstance(part, str) for _, parts in opened for part in parts))
            return await self._wait(make_prompt(body, messages), request)
        finally:
            self.budget.release(size)

    async def _wait(self, prompt: Prompt, request: Request) -> Reply:
        job = self.queue.put(prompt)
        left = asyncio.ensure_future(wait_for_disconnect(request))
        try:
            waiting: set[asyncio.Future[Any]] = {job.future, left}
            await asyncio.wait(waiting, timeout=self.limits.request_seconds, return_when=asyncio.FIRST_COMPLETED)
            return self._outcome(job, left)
        finally:
            left.cancel()
            self.queue.drop(job)

    def _outcome(self, job: Job, left: asyncio.Future[None]) -> Reply:
        if job.future.done():
            reply = job.future.result()
            if reply.error:
                raise Refused(422, reply.error)
            self.metrics.reply(reply)
            return reply
        self.metrics.add("dropped_total")
        if left.done():
            raise Refused(499, "the client left")
        raise Refused(504, f"no reply within {self.limits.request_seconds:g} seconds: ask for less, or try again later")


async def wait_for_disconnect(request: Request) -> None:
    """Returns once the client has gone; the body was read before."""
    while (await request.receive())["type"] != "http.disconnect":
        pass
