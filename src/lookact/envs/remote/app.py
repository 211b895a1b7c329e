"""The environment server's routes: sessions that reset and step, and what a client must know of the task."""

from __future__ import annotations

import asyncio
import contextlib
import functools
import logging
from collections.abc import AsyncIterator, Callable, Collection, Mapping
from concurrent.futures import ThreadPoolExecutor
from typing import Any

from fastapi import FastAPI, Request
from starlette.responses import PlainTextResponse, Response

from lookact import __version__
from lookact.envs.remote import schema
from lookact.envs.remote.calls import perform
from lookact.envs.remote.client import PROTOCOL
from lookact.envs.remote.codec import FRAME, decode, encode, to_frame, to_json
from lookact.envs.remote.sessions import Answer, Session, Sessions
from lookact.protocols import Task
from lookact.serving.limits import Budget, Limits, Refused
from lookact.serving.metrics import Metrics
from lookact.serving.middleware import RequestMiddleware, add_error_handlers
from lookact.serving.schema import ErrorResponse

log = logging.getLogger(__name__)
LIMITS = Limits(json_tokens=1 << 20)
"""Reports are made of the infos of all turns of hundreds of episodes."""
CALLS = 2
"""Calls of the task's own methods that run at once."""
METHODS = {
    "/open": "POST",
    "/reset": "POST",
    "/step": "POST",
    "/close": "POST",
    "/call": "POST",
    "/task": "GET",
    "/health": "GET",
    "/metrics": "GET",
    "/openapi.json": "GET",
}
FAILURES: dict[int | str, dict[str, Any]] = {
    status: {"model": ErrorResponse} for status in (400, 401, 404, 408, 409, 410, 413, 415, 422, 429, 500, 504)
}
FRAMED: dict[int | str, dict[str, Any]] = {200: {"content": {FRAME: {}}}, **FAILURES}
"""Where a client may ask for a frame instead of JSON."""
OWN_METRICS = {
    "sessions": ("gauge", "sessions open"),
    "episodes_total": ("counter", "resets"),
    "steps_total": ("counter", "steps"),
}
MakeTask = Callable[[int], Task]
"""The task for a seed."""


def create_app(
    make_task: MakeTask,
    *,
    name: str,
    presets: Mapping[str, Mapping[str, str]] | None = None,
    limits: Limits = LIMITS,
    max_sessions: int = 256,
    idle_seconds: float = 3600.0,
    token: str = "",
    hosts: Collection[str] = (),
) -> FastAPI:
    """The server as an ASGI application over a task, known to clients as `name`."""
    handler = SessionHandler(
        functools.lru_cache(8)(make_task), limits, Sessions(most=max_sessions, idle_seconds=idle_seconds)
    )
    task = make_task(0)
    facts = schema.TaskFacts(
        PROTOCOL,
        name,
        task.image_size,
        dict(task.outcome),
        task.best,
        {key: dict(own) for key, own in (presets or {}).items()},
    )

    @contextlib.asynccontextmanager
    async def lifespan(app: FastAPI) -> AsyncIterator[None]:
        watching = asyncio.ensure_future(handler.watch())
        yield
        watching.cancel()
        handler.sessions.close_all()

    app = FastAPI(title="LookAct environments", version=__version__, lifespan=lifespan, docs_url=None, redoc_url=None)
    add_error_handlers(app)
    add_routes(app, handler, facts)
    shared: dict[str, Any] = {"limits": limits, "budget": handler.budget, "metrics": handler.metrics}
    app.add_middleware(RequestMiddleware, **shared, methods=METHODS, token=token, hosts=hosts)
    return app


def add_routes(app: FastAPI, handler: SessionHandler, facts: schema.TaskFacts) -> None:
    @app.post("/open", responses=FAILURES)
    async def open_session(body: schema.OpenRequest) -> schema.Opened:
        return schema.Opened(await handler.open(body.task_seed))

    @app.post("/reset", response_model=schema.Started, responses=FRAMED)
    async def reset(body: schema.ResetRequest, request: Request) -> Response:
        return await handler.act(
            body,
            0,
            lambda env: env.reset(seed=body.seed, options=decode(body.options)),
            framed=wants_frame(request),
        )

    @app.post("/step", response_model=schema.Stepped, responses=FRAMED)
    async def step(body: schema.StepRequest, request: Request) -> Response:
        if isinstance(body.action, str) and len(body.action) > handler.limits.text_characters:
            raise Refused(413, f"an action of more than {handler.limits.text_characters} characters")
        return await handler.act(
            body, body.turn, lambda env: env.step(decode(body.action)), framed=wants_frame(request)
        )

    @app.post("/close", responses=FAILURES)
    async def close(body: schema.CloseRequest) -> schema.Closed:
        return schema.Closed(handler.sessions.close(body.session))

    @app.post("/call", response_model=schema.Returned, responses=FAILURES)
    async def call(body: schema.Call) -> Response:
        return await handler.call(body)

    @app.get("/task", responses={401: FAILURES[401]})
    async def task_facts() -> schema.TaskFacts:
        return facts

    @app.get("/health")
    async def health() -> schema.Health:
        return schema.Health("ok", len(handler.sessions))

    @app.get("/metrics", response_class=PlainTextResponse, responses={401: FAILURES[401]})
    async def metrics() -> Response:
        page = handler.metrics.render(sessions=len(handler.sessions), held_bytes=handler.budget.held)
        return PlainTextResponse(page, media_type="text/plain; version=0.0.4")


class SessionHandler:
    """All that the routes share."""

    def __init__(self, make_task: MakeTask, limits: Limits, sessions: Sessions) -> None:
        self.make_task, self.limits, self.sessions = make_task, limits, sessions
        self.metrics, self.budget = Metrics(OWN_METRICS), Budget(limits.held_bytes)
        self._calls = ThreadPoolExecutor(CALLS, thread_name_prefix="env-call")

    async def open(self, task_seed: int) -> str:
        name, session = self.sessions.add()

        def make() -> None:
            session.env = self.make_task(task_seed).make_env()

        try:
            await session.run(make, self.limits.request_seconds)
        except Exception as error:
            self.sessions.close(name)
            raise failed("make_env", error) from error
        return name

    async def act(
        self, body: schema.ResetRequest | schema.StepRequest, turn: int, work: Callable[[Any], Any], *, framed: bool
    ) -> Response:
        """The answer to a reset (turn 0) or step, kept: the same request gets it again without another step."""
        session = self.sessions.find(body.session)
        status, answer = await session.run(
            functools.partial(self._act, session, (body, framed), turn, work), self.limits.request_seconds
        )
        if status != 200:
            raise Refused(status, answer.decode())
        return Response(answer, media_type=FRAME if framed else "application/json")

    def _act(self, session: Session, asked: tuple[Any, bool], turn: int, work: Callable[[Any], Any]) -> Answer:
        """In the session's thread, one request after the other."""
        if turn and session.answer is not None and turn == session.turn and asked == session.asked:
            return session.answer
        if turn and turn != session.turn + 1:
            return 409, f"turn {turn} does not follow turn {session.turn}: reset first, and step once a turn".encode()
        try:
            framed = asked[1]
            answer = 200, (to_frame if framed else to_json)(describe(work(session.env), raw=framed))
        except Exception as error:
            # the environment is in no known state: only a reset goes on from here
            session.turn, session.asked, session.answer = -1, None, None
            return 422, str(failed("the environment", error)).encode(errors="replace")
        session.turn, session.asked, session.answer = turn, asked, answer
        self.metrics.add("steps_total" if turn else "episodes_total")
        return answer

    async def call(self, body: Any) -> Response:
        """A method of the task, in one of the threads that are there for it."""
        running = self._calls.submit(lambda: to_json({"value": perform(self.make_task(body.task_seed), body)}))
        try:
            answer = await asyncio.wait_for(asyncio.shield(asyncio.wrap_future(running)), self.limits.request_seconds)
        except TimeoutError:
            running.cancel()
            raise Refused(
                504, f"{body.method} took more than {self.limits.request_seconds:g} seconds: ask for less"
            ) from None
        except Exception as error:
            raise failed(body.method, error) from error
        return Response(answer, media_type="application/json")

    async def watch(self) -> None:
        while True:
            await asyncio.sleep(min(60.0, self.sessions.idle_seconds / 4))
            self.sessions.drop_idle()


def wants_frame(request: Request) -> bool:
    return request.headers.get("accept") == FRAME


def describe(result: Any, *, raw: bool) -> dict[str, Any]:
    """What `reset` or `step` returned, by name."""
    if len(result) == 2:
        return {
            "observation": encode(result[0], "observation", raw=raw),
            "info": encode(dict(result[1]), "info", raw=raw),
        }
    observation, reward, terminated, truncated, info = result
    return {
        "observation": encode(observation, "observation", raw=raw),
        "reward": encode(float(reward)),
        "terminated": bool(terminated),
        "truncated": bool(truncated),
        "info": encode(dict(info), "info", raw=raw),
    }


def failed(what: str, error: Exception) -> Refused:
    """What the environment or the task raised, in its own words."""
    return error if isinstance(error, Refused) else Refused(422, f"{what} failed: {type(error).__name__}: {error}")
