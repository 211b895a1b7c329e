"""What stands before every request: the token, the body's size, and how long the body may take to arrive."""

from __future__ import annotations

import asyncio
import hmac
import time
from collections.abc import Awaitable, Callable, Mapping, MutableMapping
from typing import Any

from lookact.judges.server.errors import error_response
from lookact.judges.server.limits import Budget, Limits, Refused
from lookact.judges.server.metrics import Metrics

Scope = MutableMapping[str, Any]
Event = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[Event]]
Send = Callable[[Event], Awaitable[None]]
App = Callable[[Scope, Receive, Send], Awaitable[None]]

OPEN_PATHS = ("/health",)
PATIENCE = 4
"""A body up to this many times too large is read to its end and thrown away, so that its sender hears the answer."""


class ClientLeft(Exception):
    """The connection closed before the request was whole."""


class Guard:
    """ASGI middleware: reads the whole body within bounds, then lets the request in. `methods` names every path's."""

    def __init__(
        self, app: App, *, limits: Limits, budget: Budget, metrics: Metrics, methods: Mapping[str, str], token: str = ""
    ) -> None:
        self.app, self.limits, self.budget, self.metrics = app, limits, budget, metrics
        self.methods, self.token = methods, token

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
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
        body: bytes | None = b"".join(held)

        async def replay() -> Event:
            nonlocal body
            if body is None:
                return await receive()
            event, body = {"type": "http.request", "body": body, "more_body": False}, None
            return event

        await self.app(scope, replay, send)

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
        if announced > limit * PATIENCE or (announced > limit and b"expect" in headers):
            raise too_large
        size, more = 0, True
        while more:
            event = await receive()
            if event["type"] == "http.disconnect":
                raise ClientLeft
            chunk, more = event.get("body", b""), event.get("more_body", False)
            size += len(chunk)
            if size > limit * PATIENCE:
                raise too_large
            if max(size, announced) <= limit:
                self.budget.hold(len(chunk))
                held.append(chunk)
        if size > limit:
            raise too_large
