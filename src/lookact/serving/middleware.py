"""What stands around the routes: host, token and body are checked first, and every refusal is one line of JSON."""

from __future__ import annotations

import asyncio
import base64
import binascii
import hmac
import json
import re
import socket
import time
from collections.abc import Awaitable, Callable, Collection, Mapping, MutableMapping
from ipaddress import ip_address
from itertools import islice
from typing import Any

from fastapi import FastAPI, Request
from fastapi.exceptions import RequestValidationError
from starlette.exceptions import HTTPException
from starlette.responses import Response

from lookact.errors import EngineError
from lookact.serving.limits import Budget, Limits, Refused
from lookact.serving.metrics import Metrics

Scope = MutableMapping[str, Any]
Event = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[Event]]
Send = Callable[[Event], Awaitable[None]]
App = Callable[[Scope, Receive, Send], Awaitable[None]]

OPEN_PATHS = ("/health",)
DRAIN_FACTOR = 4
"""A body up to this many times too large is read to its end and thrown away, so that its sender hears the answer."""
KINDS = {401: "authentication_error", 429: "rate_limit_error"}


TOKEN_BYTES = 144
"""What a JSON token takes once it is parsed, checked and decoded: maps of one number take the most, 135 bytes."""
_TOKEN = re.compile(rb'"(?:[^"\\]++|\\.)*+"?|[,{\[]', re.DOTALL)
"""A JSON string, one without an end reaching to the body's; a comma; a bracket that opens."""


class ClientLeft(Exception):
    """The connection closed before the request was whole."""


class RequestMiddleware:
    """ASGI middleware: checks host and token, reads the whole body within bounds, then lets the request in.

    `methods` names every path's. Without a token, `hosts` are the names by which the server may be asked, beside
    addresses and this machine's own name: a page whose name was made to point here (DNS rebinding) is refused.
    """

    def __init__(
        self,
        app: App,
        *,
        limits: Limits,
        budget: Budget,
        metrics: Metrics,
        methods: Mapping[str, str],
        token: str = "",
        hosts: Collection[str] = (),
    ) -> None:
        self.app, self.limits, self.budget, self.metrics = app, limits, budget, metrics
        self.methods, self.token = methods, token
        self.hosts = {"localhost", socket.gethostname().lower(), *(name.lower() for name in hosts)}

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "websocket":
            await self._admit_socket(scope, receive, send)
            return
        if scope["type"] != "http":
            await self.app(scope, receive, send)
            return
        start, status = time.monotonic(), 0

        async def send_and_note(event: Event) -> None:
            nonlocal status
            if event["type"] == "http.response.start":
                status = event["status"]
            await send(event)

        held: list[bytes] = []
        try:
            await self._admit(scope, receive, send_and_note, held)
        except ClientLeft:
            self.metrics.add("dropped_total")
        except Refused as error:
            headers = error.headers | {"Connection": "close"}
            if error.status == 401:
                headers["WWW-Authenticate"] = "Bearer"
            await error_response(error.status, str(error), headers)(scope, receive, send_and_note)
        finally:
            self.budget.release(sum(map(len, held)))
            if status:
                path = scope["path"] if scope["path"] in self.methods else "other"
                self.metrics.request(path, status, time.monotonic() - start)

    async def _admit(self, scope: Scope, receive: Receive, send: Send, held: list[bytes]) -> None:
        headers = dict(scope["headers"])
        self._check_host(headers)
        if scope["path"] not in OPEN_PATHS:
            self._check_token(headers)
        takes_json = scope["method"] == self.methods.get(scope["path"]) == "POST"
        if takes_json and not headers.get(b"content-type", b"").startswith(b"application/json"):
            raise Refused(415, "the body must be JSON: send Content-Type: application/json")
        try:
            async with asyncio.timeout(self.limits.body_seconds):
                await self._read(headers, receive, held)
        except TimeoutError:
            raise Refused(408, f"the body took more than {self.limits.body_seconds:g} seconds to arrive") from None
        whole = b"".join(held)
        body: bytes | None = whole
        tokens = count_tokens(whole, self.limits.json_tokens) if takes_json else 0
        if tokens > self.limits.json_tokens:
            raise Refused(413, f"the body has more than {self.limits.json_tokens} JSON tokens: send fewer parts")

        async def replay() -> Event:
            nonlocal body
            if body is None:
                return await receive()
            event, body = {"type": "http.request", "body": body, "more_body": False}, None
            return event

        self.budget.hold(tokens * TOKEN_BYTES)
        try:
            await self.app(scope, replay, send)
        finally:
            self.budget.release(tokens * TOKEN_BYTES)

    async def _admit_socket(self, scope: Scope, receive: Receive, send: Send) -> None:
        """The same checks before a websocket is opened; its messages are the application's to bound."""
        headers = dict(scope["headers"])
        try:
            self._check_host(headers)
            # browsers send it: pages of anywhere may open websockets to this machine, and say so by it alone
            if b"origin" in headers:
                raise Refused(403, "pages in a browser are not served: connect from a program")
            self._check_token({b"authorization": as_bearer(headers.get(b"authorization", b""))})
        except Refused as error:
            await error_response(error.status, str(error))(scope, receive, send)
            return
        await self.app(scope, receive, send)

    def _check_host(self, headers: dict[bytes, bytes]) -> None:
        name = host_name(headers.get(b"host", b"localhost").decode("latin-1"))
        if not self.token and name not in self.hosts and not is_address(name):
            raise Refused(400, "not a name of this server: ask by its address, or start it with --allow-host")

    def _check_token(self, headers: dict[bytes, bytes]) -> None:
        given = headers.get(b"authorization", b"")
        if self.token and not hmac.compare_digest(given, f"Bearer {self.token}".encode()):
            raise Refused(401, "the bearer token is missing or wrong: send Authorization: Bearer TOKEN")

    async def _read(self, headers: dict[bytes, bytes], receive: Receive, held: list[bytes]) -> None:
        """Gathers the body in `held`, each chunk counted against the budget before it is kept."""
        limit = self.limits.body_bytes
        too_large = Refused(413, f"the body has more than {limit} bytes: send fewer or smaller images")
        declared = headers.get(b"content-length", b"0")
        announced = int(declared) if declared.isdigit() else 0
        if announced > limit * DRAIN_FACTOR or (announced > limit and b"expect" in headers):
            raise too_large
        size, more = 0, True
        while more:
            event = await receive()
            if event["type"] == "http.disconnect":
                raise ClientLeft
            chunk, more = event.get("body", b""), event.get("more_body", False)
            size += len(chunk)
            if size > limit * DRAIN_FACTOR:
                raise too_large
            if max(size, announced) <= limit:
                self.budget.hold(len(chunk))
                held.append(chunk)
        if size > limit:
            raise too_large


def count_tokens(body: bytes, most: int) -> int:
    """Strings, commas and opening brackets of JSON that is not parsed: never too few, and at most one above `most`."""
    if (signs := sum(map(body.count, (b'"', b",", b"{", b"[")))) <= most:
        return signs
    # what stands in strings does not count
    return sum(1 for _ in islice(_TOKEN.finditer(body), most + 1))


def as_bearer(header: bytes) -> bytes:
    """`Api-Key TOKEN`, as openpi's client sends, and the password of ws://user:TOKEN@host as a bearer token."""
    kind, _, given = header.partition(b" ")
    if kind.lower() == b"api-key":
        return b"Bearer " + given
    if kind.lower() != b"basic":
        return header
    try:
        return b"Bearer " + base64.b64decode(given, validate=True).partition(b":")[2]
    except binascii.Error:
        return b""


def host_name(header: str) -> str:
    """The name or address in a Host header, without its port."""
    name = header.strip().lower()
    if name.startswith("["):
        inside, _, rest = name[1:].partition("]")
        return name if rest and not rest.startswith(":") else inside
    return name.rpartition(":")[0] or name


def is_address(name: str) -> bool:
    try:
        ip_address(name)
    except ValueError:
        return False
    return True


def error_body(status: int, message: str) -> dict[str, Any]:
    """`{"error": {"message", "type", "code"}}`, the message in one line."""
    kind = KINDS.get(status, "invalid_request_error" if status < 500 else "server_error")
    return {"error": {"message": " ".join(message.split())[:500], "type": kind, "code": status}}


def error_response(status: int, message: str, headers: dict[str, str] | None = None) -> Response:
    # ascii: a lone surrogate in a message must not break the answer
    body = json.dumps(error_body(status, message), ensure_ascii=True)
    return Response(body, status, headers, media_type="application/json")


def add_error_handlers(app: FastAPI) -> None:
    """Answer everything that can be raised while a request is handled."""

    @app.exception_handler(Refused)
    async def refuse(request: Request, error: Refused) -> Response:
        return error_response(error.status, str(error), error.headers)

    @app.exception_handler(RequestValidationError)
    async def invalid(request: Request, error: RequestValidationError) -> Response:
        # of the branches of a union, the one that got furthest is what was meant
        worst = max(error.errors(), key=lambda each: len(each["loc"]))
        if worst["type"] == "json_invalid":
            return error_response(400, f"the body is not JSON: {worst.get('ctx', {}).get('error', worst['msg'])}")
        told = (
            "this server has no such field: leave it out"
            if worst["type"] == "unexpected_keyword_argument"
            else worst["msg"]
        )
        return error_response(422, f"{place(worst['loc'])}: {told}")

    @app.exception_handler(HTTPException)
    async def http(request: Request, error: HTTPException) -> Response:
        return error_response(error.status_code, str(error.detail), dict(error.headers or {}))

    @app.exception_handler(EngineError)
    async def engine(request: Request, error: EngineError) -> Response:
        return error_response(500, str(error))

    @app.exception_handler(Exception)
    async def anything(request: Request, error: Exception) -> Response:
        return error_response(500, f"the server failed: {type(error).__name__}")


def place(location: tuple[Any, ...]) -> str:
    """Where in the body a value stands, as in messages.0.content."""
    named = [str(part) for part in location if part not in ("body", "str") and "[" not in str(part)]
    return ".".join(named) or "body"
