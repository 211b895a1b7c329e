"""The policy server's routes: websockets in openpi's and vla-eval's message forms, and a few pages over HTTP."""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Collection, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict
from functools import partial
from typing import Any, Literal

import numpy as np
from fastapi import FastAPI, WebSocket
from numpy.typing import NDArray
from pydantic.dataclasses import dataclass
from starlette.responses import PlainTextResponse, Response
from starlette.websockets import WebSocketDisconnect

from lookact import __version__
from lookact.protocols import ControlPolicy
from lookact.rollout.policy_server.batching import PolicyEngine, Session
from lookact.rollout.policy_server.codec import array_bytes, pack, unpack
from lookact.rollout.policy_server.observations import PolicyFacts, read_observation
from lookact.serving.limits import MIB, Budget, Limits, Refused
from lookact.serving.metrics import Metrics
from lookact.serving.middleware import RequestMiddleware, add_error_handlers, error_response
from lookact.serving.schema import ErrorResponse

LIMITS = Limits(
    body_bytes=16 * MIB,
    images=8,
    image_pixels=2048 * 1024,
    request_pixels=4 * 2048 * 1024,
    text_characters=4000,
    request_seconds=30.0,
    batch_wait=0.001,
)
"""`body_bytes` bounds a message, `json_tokens` its values, `held_bytes` all messages and what they are decoded to."""
DECODERS = 2
METHODS = dict.fromkeys(("/health", "/healthz", "/metadata", "/metrics", "/openapi.json"), "GET")
OWN_METRICS = {
    "sessions": ("gauge", "connections open"),
    "episodes_total": ("counter", "episodes whose beginning was told"),
    "actions_total": ("counter", "actions given"),
    "refused_total": ("counter", "messages refused"),
    "batches_total": ("counter", "passes through the policy"),
}
VLA_EVAL_VERSION = 1
"""Of vla-eval's protocol."""
Talk = Callable[[WebSocket, Session], Awaitable[None]]


@dataclass(frozen=True)
class Health:
    status: Literal["ok"]
    sessions: int


@dataclass(frozen=True)
class Metadata:
    """What the policy wants to be shown, and what it answers with."""

    server: str
    version: str
    recipe: str
    cameras: list[str]
    image_size: int
    state_size: int
    action_size: int
    greedy: bool
    memory: bool


def create_app(
    policy: ControlPolicy,
    facts: PolicyFacts,
    *,
    renames: Mapping[str, str] | None = None,
    limits: Limits = LIMITS,
    max_sessions: int = 64,
    idle_seconds: float = 600.0,
    seed: int = 0,
    token: str = "",
    hosts: Collection[str] = (),
) -> FastAPI:
    """The server as an ASGI application over a policy."""
    engine = PolicyEngine(policy, limits, greedy=facts.greedy, seed=seed)
    server = PolicyServer(engine, facts, dict(renames or {}), max_sessions, idle_seconds)

    @contextlib.asynccontextmanager
    async def lifespan(app: FastAPI) -> AsyncIterator[None]:
        running = asyncio.ensure_future(engine.run())
        yield
        running.cancel()

    app = FastAPI(title="LookAct policy", version=__version__, lifespan=lifespan, docs_url=None, redoc_url=None)
    add_error_handlers(app)
    add_routes(app, server)
    shared: dict[str, Any] = {"limits": limits, "budget": server.budget, "metrics": server.metrics}
    app.add_middleware(RequestMiddleware, **shared, methods=METHODS, token=token, hosts=hosts)
    return app


def add_routes(app: FastAPI, server: PolicyServer) -> None:
    refused: dict[int | str, dict[str, Any]] = {401: {"model": ErrorResponse}}

    @app.websocket("/")
    async def openpi(socket: WebSocket) -> None:
        await server.connect(socket, server.talk_openpi)

    @app.websocket("/vla-eval")
    async def vla_eval(socket: WebSocket) -> None:
        await server.connect(socket, server.talk_vla_eval)

    @app.get("/health")
    async def health() -> Health:
        return Health("ok", server.sessions)

    @app.get("/healthz", response_class=PlainTextResponse)
    async def healthz() -> str:
        return "OK\n"

    @app.get("/metadata", responses=refused)
    async def metadata() -> Metadata:
        return Metadata(**server.metadata)

    @app.get("/metrics", response_class=PlainTextResponse, responses=refused)
    async def metrics() -> Response:
        gauges = {"sessions": server.sessions, "held_bytes": server.budget.held}
        page = server.metrics.render(**gauges, batches_total=server.engine.batches)
        return PlainTextResponse(page, media_type="text/plain; version=0.0.4")


class PolicyServer:
    """All that the routes share."""

    def __init__(
        self, engine: PolicyEngine, facts: PolicyFacts, renames: Mapping[str, str], most: int, idle_seconds: float
    ) -> None:
        self.engine, self.facts, self.most, self.idle_seconds = engine, facts, most, idle_seconds
        self.renames = {name.replace(".", "/"): own for name, own in renames.items()}
        self.limits, self.sessions = engine.limits, 0
        self.metrics, self.budget = Metrics(OWN_METRICS), Budget(engine.limits.held_bytes)
        self.metadata = {"server": "lookact", "version": __version__, **asdict(facts), "cameras": list(facts.cameras)}
        self._decoders = ThreadPoolExecutor(DECODERS, thread_name_prefix="decode")

    async def connect(self, socket: WebSocket, talk: Talk) -> None:
        """A session as long as the connection lasts; one too many is refused before it is taken."""
        if self.sessions >= self.most:
            full = f"{self.most} sessions are open, which is all: close one, or serve with --max-sessions"
            await error_response(429, full, {"Retry-After": "1"})(socket.scope, socket.receive, socket.send)
            return
        self.sessions += 1
        try:
            await socket.accept()
            await talk(socket, self.engine.open())
        except WebSocketDisconnect:
            pass
        except TimeoutError:
            with contextlib.suppress(RuntimeError, WebSocketDisconnect):
                await socket.close(1001, f"nothing was sent or read for {self.idle_seconds:g} seconds")
        finally:
            self.sessions -= 1

    async def talk_openpi(self, socket: WebSocket, session: Session) -> None:
        """Metadata first, then an action for each observation; a text frame tells what was wrong with one."""
        await self.send(socket, pack(self.metadata, binary_names=True))
        while True:
            try:
                async with self.message(socket) as sent:
                    began = time.perf_counter()
                    answer = await self.answer_openpi(session, sent)
            except Refused as error:
                self.metrics.add("refused_total")
                await self.send(socket, one_line(error))
                continue
            timing = {"infer_ms": 1000 * (time.perf_counter() - began)}
            await self.send(socket, pack(answer | {"server_timing": timing}, binary_names=True))

    async def answer_openpi(self, session: Session, sent: Any) -> dict[str, Any]:
        if isinstance(sent, dict) and sent.pop("reset", False):
            self.begin(session)
            if not sent:
                return {"reset": True}
        return {"actions": (await self.act(session, sent))[None]}

    async def talk_vla_eval(self, socket: WebSocket, session: Session) -> None:
        """Messages with type, payload and number: hello, the beginning and end of episodes, observations."""
        while True:
            kind, number, payload = "", 0, None
            try:
                async with self.message(socket) as sent:
                    kind, number, payload = envelope(sent)
                    answer = await self.answer_vla_eval(session, kind, payload)
            except Refused as error:
                self.metrics.add("refused_total")
                answer = {"type": "error", "payload": {"error": one_line(error)}}
            if answer:
                stamped = answer | {"seq": number, "timestamp": time.time()}
                await self.send(socket, pack(stamped, binary_names=False))

    async def answer_vla_eval(self, session: Session, kind: str, payload: Any) -> dict[str, Any]:
        """The answer's type and payload; nothing where none is expected."""
        if kind == "hello":
            told = {"harness_version": f"lookact {__version__}", "protocol_version": VLA_EVAL_VERSION}
            told |= {"model_server": self.facts.recipe, "capabilities": {}, "metadata": self.metadata}
            return {"type": "hello", "payload": told}
        if kind == "observation":
            return {"type": "action", "payload": {"actions": await self.act(session, payload)}}
        if kind in ("episode_start", "episode_end"):
            self.begin(session)
        elif kind != "error":
            raise Refused(422, f"a message of the type {kind[:40]}: send hello, episode_start or observation")
        return {}

    def begin(self, session: Session) -> None:
        session.reset()
        self.metrics.add("episodes_total")

    async def act(self, session: Session, sent: Any) -> NDArray[np.float32]:
        read = partial(read_observation, sent, self.facts, self.renames)
        shown = await asyncio.get_running_loop().run_in_executor(self._decoders, read)
        action = await self.engine.act(session, shown)
        self.metrics.add("actions_total")
        return action

    @contextlib.asynccontextmanager
    async def message(self, socket: WebSocket) -> AsyncIterator[Any]:
        """The next message, decoded; its bytes and what they became are held while it is worked on."""
        async with asyncio.timeout(self.idle_seconds):
            event = await socket.receive()
        if event["type"] == "websocket.disconnect":
            raise WebSocketDisconnect(event.get("code", 1005))
        data = event.get("bytes")
        if data is None:
            raise Refused(415, "a text message: send msgpack as binary messages")
        held = len(data)
        self.budget.hold(held)
        try:
            sent = await asyncio.get_running_loop().run_in_executor(self._decoders, unpack, data, self.limits)
            arrays = array_bytes(sent)
            self.budget.hold(arrays)
            held += arrays
            yield sent
        finally:
            self.budget.release(held)

    async def send(self, socket: WebSocket, data: bytes | str) -> None:
        """One message; a client that does not read is left."""
        async with asyncio.timeout(self.idle_seconds):
            await (socket.send_text(data) if isinstance(data, str) else socket.send_bytes(data))


def envelope(sent: Any) -> tuple[str, int, Any]:
    """Type, number and payload of a message in vla-eval's form."""
    if not isinstance(sent, dict) or not isinstance(sent.get("type"), str) or not isinstance(sent.get("payload"), dict):
        raise Refused(422, "a message has type, payload and seq: connect to / for openpi's form")
    number = sent.get("seq", 0)
    return sent["type"], number if isinstance(number, int) and abs(number) < 2**63 else 0, sent["payload"]


def one_line(error: Refused) -> str:
    return " ".join(str(error).split())[:500]
