"""The server's routes: OpenAI's chat completions, the plain /generate, health, metrics and the model's name."""

from __future__ import annotations

import asyncio
import contextlib
import time
import uuid
from collections.abc import AsyncGenerator, AsyncIterator, Collection, Sequence
from typing import Any, Literal

from fastapi import FastAPI, Request
from starlette.concurrency import run_in_threadpool
from starlette.responses import PlainTextResponse, Response, StreamingResponse

from lookact import __version__
from lookact.errors import EngineError
from lookact.judges.server.batching import MODEL_METRICS, Generate, Job, JobQueue, Prompt, Reply, Worker
from lookact.judges.server.prompts import decode_messages, decoded_bytes, make_prompts, open_messages, token_limit
from lookact.judges.server.schema import (
    ChatRequest,
    ChatResponse,
    Choice,
    ChoiceLogprobs,
    ContentLogprob,
    GenerateRequest,
    GenerateResponse,
    Health,
    ModelCard,
    ModelList,
    ReplyMessage,
    TopLogprob,
    Usage,
)
from lookact.judges.server.streaming import MEDIA_TYPE, events
from lookact.serving.limits import Budget, Limits, Refused
from lookact.serving.metrics import Metrics
from lookact.serving.middleware import RequestMiddleware, add_error_handlers
from lookact.serving.schema import ErrorResponse

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
UNKNOWN: dict[int | str, dict[str, Any]] = {404: {"model": ErrorResponse}}
STREAMED: dict[int | str, dict[str, Any]] = {200: {"content": {MEDIA_TYPE: {}}}}


def create_app(
    generate: Generate, *, model: str, limits: Limits | None = None, token: str = "", hosts: Collection[str] = ()
) -> FastAPI:
    """The server as an ASGI application over `generate`, known to clients as `model`, and by `hosts` beside its own."""
    limits = limits or Limits()
    handler = RequestHandler(generate, limits)

    @contextlib.asynccontextmanager
    async def lifespan(app: FastAPI) -> AsyncIterator[None]:
        app.state.working = asyncio.ensure_future(handler.worker.run())
        yield
        app.state.working.cancel()

    app = FastAPI(title="LookAct judge", version=__version__, lifespan=lifespan, docs_url=None, redoc_url=None)
    add_error_handlers(app)

    @app.post("/v1/chat/completions", responses=FAILURES | UNKNOWN | STREAMED, response_model=ChatResponse)
    async def chat_completions(body: ChatRequest, request: Request) -> Any:
        check_name(body.model, model)
        if body.stream:
            counted = bool(body.stream_options and body.stream_options.include_usage)
            parts = await handler.begin_stream(body, request)
            return StreamingResponse(events(parts, model=model, usage=counted), media_type=MEDIA_TYPE)
        replies = await handler.answer(body, request)
        choices = [as_choice(number, reply, logprobs=bool(body.logprobs)) for number, reply in enumerate(replies)]
        return ChatResponse(f"chatcmpl-{uuid.uuid4().hex}", int(time.time()), model, choices, usage(replies))

    @app.post("/generate", responses=FAILURES)
    async def generate_text(body: GenerateRequest, request: Request) -> GenerateResponse:
        [reply] = await handler.answer(body, request)
        return GenerateResponse(reply.text, finish(reply), usage([reply]))

    @app.get("/health", responses={503: FAILURES[503]})
    async def health() -> Health:
        if app.state.working.done():
            raise Refused(503, "the model's thread has ended: restart the server")
        return Health("ok", len(handler.queue))

    @app.get("/metrics", response_class=PlainTextResponse, responses={401: FAILURES[401]})
    async def metrics() -> Response:
        page = handler.metrics.render(queue_waiting=len(handler.queue), held_bytes=handler.budget.held)
        return PlainTextResponse(page, media_type="text/plain; version=0.0.4")

    add_model_routes(app, ModelCard(model, int(time.time())))
    shared: dict[str, Any] = {"limits": limits, "budget": handler.budget, "metrics": handler.metrics}
    app.add_middleware(RequestMiddleware, **shared, methods=METHODS, token=token, hosts=hosts)
    return app


def add_model_routes(app: FastAPI, card: ModelCard) -> None:
    """The list of the one model, and the model by its name, which may hold slashes."""

    @app.get("/v1/models", responses={401: FAILURES[401]})
    async def models() -> ModelList:
        return ModelList([card])

    @app.get("/v1/models/{name:path}", responses={401: FAILURES[401], **UNKNOWN})
    async def model_card(name: str) -> ModelCard:
        check_name(name, card.id)
        return card


def check_name(asked: str | None, model: str) -> None:
    if asked is not None and asked != model:
        raise Refused(404, f"no model {asked!r} here: ask for {model!r}")


def as_choice(number: int, reply: Reply, *, logprobs: bool) -> Choice:
    return Choice(ReplyMessage(reply.text), finish(reply), number, logprobs_of(reply) if logprobs else None)


def logprobs_of(reply: Reply) -> ChoiceLogprobs:
    """A reply's log-probabilities in OpenAI's form."""
    content = [
        ContentLogprob(
            told.token,
            told.logprob,
            list(told.token.encode()),
            [TopLogprob(token, logprob, list(token.encode())) for token, logprob in told.top],
        )
        for told in reply.logprobs
    ]
    return ChoiceLogprobs(content)


def usage(replies: Sequence[Reply]) -> Usage:
    """Tokens of one request: its prompt is counted once."""
    prompt, completion = replies[0].prompt_tokens, sum(reply.completion_tokens for reply in replies)
    return Usage(prompt, completion, prompt + completion)


def finish(reply: Reply) -> Literal["stop", "length"]:
    return "length" if reply.finish == "length" else "stop"


class RequestHandler:
    """All that the routes share: the queue, the worker, the budget of memory and the metrics."""

    def __init__(self, generate: Generate, limits: Limits) -> None:
        self.limits, self.metrics = limits, Metrics(MODEL_METRICS)
        self.queue, self.budget = JobQueue(limits), Budget(limits.held_bytes)
        self.worker = Worker(generate, self.queue, self.metrics)
        self._decoding = asyncio.Semaphore(2)

    async def answer(self, body: GenerateRequest | ChatRequest, request: Request) -> list[Reply]:
        """The model's replies, as many as were asked for."""
        async with self._prompts(body) as prompts:
            return await self._wait(prompts, request)

    async def begin_stream(self, body: ChatRequest, request: Request) -> AsyncIterator[Reply]:
        """The parts of a reply, once the first is there: what is refused before it has its own status."""
        parts = self._stream(body)
        first: asyncio.Future[Reply] = asyncio.ensure_future(anext(parts))
        left = asyncio.ensure_future(wait_for_disconnect(request))
        try:
            waiting: set[asyncio.Future[Any]] = {first, left}
            await asyncio.wait(waiting, return_when=asyncio.FIRST_COMPLETED)
            if not first.done():
                raise Refused(499, "the client left")
            return joined(first.result(), parts)
        finally:
            first.cancel()
            left.cancel()

    async def _stream(self, body: ChatRequest) -> AsyncGenerator[Reply]:
        async with self._prompts(body) as (prompt,):
            job = self.queue.put(prompt)
            parts = job.parts = asyncio.Queue[Reply | EngineError]()
            late = asyncio.get_running_loop().time() + self.limits.request_seconds
            try:
                while True:
                    async with asyncio.timeout_at(late):
                        outcome = await parts.get()
                    if isinstance(outcome, EngineError):
                        raise outcome
                    if outcome.finish:
                        self._count(outcome)
                    yield outcome
                    if outcome.finish:
                        return
            except TimeoutError:
                self.metrics.add("dropped_total")
                raise self._too_late() from None
            finally:
                self.queue.drop(job)

    @contextlib.asynccontextmanager
    async def _prompts(self, body: GenerateRequest | ChatRequest) -> AsyncIterator[list[Prompt]]:
        """The prompts of a request, held in memory; refuses what is too much before any pixel is decoded."""
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
            yield make_prompts(body, messages)
        finally:
            self.budget.release(held)

    async def _wait(self, prompts: Sequence[Prompt], request: Request) -> list[Reply]:
        jobs: list[Job] = []
        left = asyncio.ensure_future(wait_for_disconnect(request))
        try:
            for prompt in prompts:
                jobs.append(self.queue.put(prompt))
            every = asyncio.gather(*(job.future for job in jobs), return_exceptions=True)
            waiting: set[asyncio.Future[Any]] = {every, left}
            await asyncio.wait(waiting, timeout=self.limits.request_seconds, return_when=asyncio.FIRST_COMPLETED)
            if every.done():
                return [self._count(job.future.result()) for job in jobs]
            self.metrics.add("dropped_total")
            raise Refused(499, "the client left") if left.done() else self._too_late()
        finally:
            left.cancel()
            for job in jobs:
                self.queue.drop(job)

    def _count(self, reply: Reply) -> Reply:
        if reply.error:
            raise Refused(422, reply.error)
        self.metrics.add("prompt_tokens_total", reply.prompt_tokens)
        self.metrics.add("completion_tokens_total", reply.completion_tokens)
        return reply

    def _too_late(self) -> Refused:
        seconds = self.limits.request_seconds
        return Refused(504, f"no reply within {seconds:g} seconds: ask for less, or try again later")


async def joined(first: Reply, rest: AsyncGenerator[Reply]) -> AsyncIterator[Reply]:
    """A stream whose first part was taken out of it."""
    async with contextlib.aclosing(rest):
        yield first
        async for reply in rest:
            yield reply


async def wait_for_disconnect(request: Request) -> None:
    """Returns once the client has gone; the body was read before."""
    while (await request.receive())["type"] != "http.disconnect":
        pass
