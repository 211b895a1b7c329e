"""The server's routes: OpenAI's chat completions, the plain /generate, health, metrics and the model's name."""

from __future__ import annotations

import asyncio
import contextlib
import time
import uuid
from collections.abc import AsyncIterator
from typing import Any

from fastapi import FastAPI, Request
from starlette.responses import PlainTextResponse, Response

from lookact import __version__
from lookact.judges.server.desk import RequestHandler
from lookact.judges.server.errors import add_error_handlers
from lookact.judges.server.guard import Guard
from lookact.judges.server.limits import Limits, Refused
from lookact.judges.server.records import Generate, Reply
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


def create_app(generate: Generate, *, model: str, limits: Limits | None = None, token: str = "") -> FastAPI:
    """The server as an ASGI application over `generate`, known to clients as `model`."""
    limits = limits or Limits()
    desk = RequestHandler(generate, limits)
    started = int(time.time())

    @contextlib.asynccontextmanager
    async def lifespan(app: FastAPI) -> AsyncIterator[None]:
        app.state.working = asyncio.ensure_future(desk.worker.run())
        yield
        app.state.working.cancel()

    app = FastAPI(title="LookAct judge", version=__version__, lifespan=lifespan, docs_url=None, redoc_url=None)
    add_error_handlers(app)

    @app.post("/v1/chat/completions", responses=FAILURES)
    async def chat_completions(body: ChatRequest, request: Request) -> ChatResponse:
        reply = await desk.answer(body, request)
        choice = Choice(ReplyMessage(reply.text), reply.finish)
        return ChatResponse(f"chatcmpl-{uuid.uuid4().hex}", int(time.time()), model, [choice], usage(reply))

    @app.post("/generate", responses=FAILURES)
    async def generate_text(body: GenerateRequest, request: Request) -> GenerateResponse:
        reply = await desk.answer(body, request)
        return GenerateResponse(reply.text, reply.finish, usage(reply))

    @app.get("/health", responses={503: FAILURES[503]})
    async def health() -> Health:
        if app.state.working.done():
            raise Refused(503, "the model's thread has ended: restart the server")
        return Health("ok", model, len(desk.queue))

    @app.get("/metrics", response_class=PlainTextResponse, responses={401: FAILURES[401]})
    async def metrics() -> Response:
        page = desk.metrics.render(queue_waiting=len(desk.queue), held_bytes=desk.budget.held)
        return PlainTextResponse(page, media_type="text/plain; version=0.0.4")

    @app.get("/v1/models", responses={401: FAILURES[401]})
    async def models() -> ModelList:
        return ModelList([ModelCard(model, started)])

    app.add_middleware(Guard, limits=limits, budget=desk.budget, metrics=desk.metrics, methods=METHODS, token=token)
    return app


def usage(reply: Reply) -> Usage:
    return Usage(reply.prompt_tokens, reply.completion_tokens, reply.prompt_tokens + reply.completion_tokens)
