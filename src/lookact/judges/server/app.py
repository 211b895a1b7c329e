"""The server's routes: OpenAI's chat completions, the plain /generate, health, metrics and the model's name."""

from __future__ import annotations

import asyncio
import contextlib
import time
import uuid
from collections.abc import AsyncIterator, Collection
from typing import Any

from fastapi import FastAPI, Request
from starlette.concurrency import run_in_threadpool
from starlette.responses import PlainTextResponse, Response

from lookact import __version__
from lookact.judges.server.batching import Generate, Job, JobQueue, Prompt, Reply, Worker
from lookact.judges.server.limits import Budget, Limits, Refused
from lookact.judges.server.metrics import Metrics
from lookact.judges.server.middleware import RequestMiddleware, add_error_handlers
from lookact.judges.server.prompts import decode_messages, decoded_bytes, make_prompt, open_messages, token_limit
from lookact.judges.server.schema import (
    ChatRequest,
    ChatResponse,
    Choice,
    ErrorResponse,
    GenerateRequest,
    GenerateResponse,
    Health,
    ModelCard,
    ModelList,
    ReplyMessage,
    Usage,
)

METHODS = {
    "/v1/chat/completions": "POST",
    "/generate": "POST",
    "/health": "GET",
    "/metrics": "GET",
    "/v1/models": "GET",
    "/openapi.json": "GET",
}
FAILURES: dict[int | str, dict[str, Any]] = {
    status: {"model": ErrorResponse} for status in (400, 401, 408, 413, 415, 422, 429, 500, 503, 504)
}


def create_app(
    generate: Generate, *, model: str, limits: Limits | None = None, token: str = "", hosts: Collection[str] = ()
) -> FastAPI:
    """The server as an ASGI application over `generate`, known to clients as `model`, and by `hosts` beside its own."""
    limits = limits or Limits()
    handler = RequestHandler(generate, limits)
    started = int(time.time())

    @contextlib.asynccontextmanager
    async def lifespan(app: FastAPI) -> AsyncIterator[None]:
        app.state.working = asyncio.ensure_future(handler.worker.run())
        yield
        app.state.working.cancel()

    app = FastAPI(title="LookAct judge", version=__version__, lifespan=lifespan, docs_url=None, redoc_url=None)
    add_error_handlers(app)

    @app.post("/v1/chat/completions", responses=FAILURES)
    async def chat_completions(body: ChatRequest, request: Request) -> ChatResponse:
        reply = await handler.answer(body, request)
        choice = Choice(ReplyMessage(reply.text), reply.finish)
        return ChatResponse(f"chatcmpl-{uuid.uuid4().hex}", int(time.time()), model, [choice], usage(reply))

    @app.post("/generate", responses=FAILURES)
    async def generate_text(body: GenerateRequest, request: Request) -> GenerateResponse:
        reply = await handler.answer(body, request)
        return GenerateResponse(reply.text, reply.finish, usage(reply))

    @app.get("/health", responses={503: FAILURES[503]})
    async def health() -> Health:
        if app.state.working.done():
            raise Refused(503, "the model's thread has ended: restart the server")
        return Health("ok", len(handler.queue))

    @app.get("/metrics", response_class=PlainTextResponse, responses={401: FAILURES[401]})
    async def metrics() -> Response:
        page = handler.metrics.render(queue_waiting=len(handler.queue), held_bytes=handler.budget.held)
        return PlainTextResponse(page, media_type="text/plain; version=0.0.4")

    @app.get("/v1/models", responses={401: FAILURES[401]})
    async def models() -> ModelList:
        return ModelList([ModelCard(model, started)])

    shared: dict[str, Any] = {"limits": limits, "budget": handler.budget, "metrics": handler.metrics}
    app.add_middleware(RequestMiddleware, **shared, methods=METHODS, token=token, hosts=hosts)
    return app


def usage(reply: Reply) -> Usage:
    return Usage(reply.prompt_tokens, reply.completion_tokens, reply.prompt_tokens + reply.completion_tokens)


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
        kept, while_decoding = decoded_bytes(opened)
        held = kept + while_decoding
        self.budget.hold(held)
        try:
            async with self._decoding:
                messages = await run_in_threadpool(decode_messages, opened)
            self.budget.release(while_decoding)
            held = kept
            self.metrics.add("images_total", sum(not isinstance(part, str) for _, parts in opened for part in parts))
            return await self._wait(make_prompt(body, messages), request)
        finally:
            self.budget.release(held)

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
            self.metrics.tokens(reply.prompt_tokens, reply.completion_tokens)
            return reply
        self.metrics.add("dropped_total")
        if left.done():
            raise Refused(499, "the client left")
        raise Refused(504, f"no reply within {self.limits.request_seconds:g} seconds: ask for less, or try again later")


async def wait_for_disconnect(request: Request) -> None:
    """Returns once the client has gone; the body was read before."""
    while (await request.receive())["type"] != "http.disconnect":
        pass
