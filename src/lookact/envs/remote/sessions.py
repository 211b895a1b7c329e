"""Sessions of the environment server: one environment and one thread each, a bounded number of them."""

from __future__ import annotations

import asyncio
import logging
import secrets
import time
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Any, TypeVar

from lookact.protocols import Env
from lookact.serving.limits import Refused

log = logging.getLogger(__name__)
Result = TypeVar("Result")
Answer = tuple[int, bytes]
"""Status and body."""


class Session:
    """An environment that is only ever touched by its own thread: renderers often insist on it."""

    def __init__(self) -> None:
        self.thread = ThreadPoolExecutor(1, thread_name_prefix="env-session")
        self.env: Env | None = None
        self.turn = -1
        """Of the last answer; -1 before the first reset."""
        self.asked: Any = None
        self.answer: Answer | None = None
        """The last request and its answer, which may be asked for again: an answer can be lost on its way."""
        self.last_use = time.monotonic()
        self.busy: Future[Any] | None = None
        self.hung = False

    async def run(self, work: Callable[[], Result], seconds: float) -> Result:
        """`work` in the session's thread; one that takes too long ends the session for its client."""
        self.last_use = time.monotonic()
        if self.hung:
            raise Refused(410, "the environment hangs: open another session")
        self.busy = self.thread.submit(work)
        try:
            # unlike wait_for it leaves the work alone when time is up
            done, _ = await asyncio.wait((asyncio.wrap_future(self.busy),), timeout=seconds)
        finally:
            self.last_use = time.monotonic()
        if not done:
            self.hung = True
            raise Refused(410, f"the environment took more than {seconds:g} seconds: open another session")
        result: Result = done.pop().result()
        return result

    def end(self) -> None:
        """Closes the environment when its thread gets to it; a thread that hangs is left alone."""
        if self.env is not None:
            self.thread.submit(close_quietly, self.env)
        self.thread.shutdown(wait=False)

    @property
    def in_use(self) -> bool:
        return self.busy is not None and not self.busy.done()


def close_quietly(env: Env) -> None:
    try:
        env.close()
    except Exception as error:
        log.warning("an environment could not be closed: %s: %s", type(error).__name__, error)


class Sessions:
    """At most `most` at once; one that nobody used for `idle_seconds` is closed. For the event loop's thread."""

    def __init__(self, *, most: int, idle_seconds: float) -> None:
        self.most, self.idle_seconds = most, idle_seconds
        self.open: dict[str, Session] = {}
        self.left: list[Session] = []
        """Closed while their environment was at work: their threads count until they end."""

    def __len__(self) -> int:
        self.left = [session for session in self.left if session.in_use]
        return len(self.open) + len(self.left)

    def add(self) -> tuple[str, Session]:
        self.drop_idle()
        if len(self) >= self.most:
            raise Refused(
                429,
                f"{self.most} sessions are open, which is all: close one, or start it with --max-sessions",
                retry_after=1,
            )
        name = secrets.token_urlsafe(16)
        self.open[name] = Session()
        return name, self.open[name]

    def find(self, name: str) -> Session:
        session = self.open.get(name)
        if session is None:
            raise Refused(404, "there is no such session: it was closed, or the server was started anew")
        return session

    def close(self, name: str) -> bool:
        session = self.open.pop(name, None)
        if session is None:
            return False
        if session.in_use:
            self.left.append(session)
        session.end()
        return True

    def drop_idle(self) -> None:
        now = time.monotonic()
        idle = [
            name
            for name, session in self.open.items()
            if now - session.last_use > self.idle_seconds and (session.hung or not session.in_use)
        ]
        for name in idle:
            log.info("a session idle for %g s is closed", self.idle_seconds)
            self.close(name)

    def close_all(self) -> None:
        for name in list(self.open):
            self.close(name)
