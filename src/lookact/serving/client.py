"""A client over HTTP that asks again while a server is busy, restarting or not there yet. Loads no torch."""

from __future__ import annotations

import http.client
import itertools
import json
import select
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass
from email.message import Message
from email.utils import parsedate_to_datetime
from typing import Any
from urllib.parse import urlsplit

from lookact.errors import ConfigError, LookActError
from lookact.seeding import numpy_rng

RETRIED = frozenset((408, 425, 429, 500, 502, 503, 504))
"""Status codes that are retried."""
MIN_DELAY_S, MAX_DELAY_S = 0.25, 10.0
"""Seconds before the first retry, and the most between two."""
MAX_RETRY_AFTER_S = 300.0
"""A server that asks for a longer pause is asked again after this one."""
MAX_ANSWER_BYTES = 256 << 20
"""A longer answer is not read to its end."""
CHUNK_BYTES = 1 << 20
FAILURES = (OSError, http.client.HTTPException, UnicodeError)
"""What a connection may end with."""


class RequestRefused(LookActError):
    """The server understood, and said no: asking again would not help."""

    def __init__(self, message: str, status: int) -> None:
        super().__init__(message)
        self.status = status


class ServerAway(LookActError):
    """Nobody answered in the time given."""


@dataclass(frozen=True)
class Answer:
    """What a server said."""

    url: str
    status: int
    headers: Message
    content: bytes

    @property
    def is_success(self) -> bool:
        return 200 <= self.status < 300

    def json(self) -> Any:
        return json.loads(self.content)


class HttpClient:
    """Requests to one server, each tried again for up to `retry_s`; safe to use from many threads.

    Over the standard library's connections: a general client's own work costs more than a step of many environments.
    """

    def __init__(
        self,
        url: str,
        *,
        token: str = "",
        accept: str = "*/*",
        timeout: float = 120.0,
        retry_s: float = 60.0,
        concurrency: int = 16,
        seed: int = 0,
        sleep: Callable[[float], None] = time.sleep,
    ) -> None:
        """`accept`: the media type of answers that is asked for; `timeout`: seconds for one whole answer; `seed`: of
        the jitter between retries."""
        self.url, self.timeout, self.retry_s, self.seed, self._sleep = url.rstrip("/"), timeout, retry_s, seed, sleep
        self.retries = 0
        self._lock, self._free = threading.Lock(), threading.BoundedSemaphore(concurrency)
        self._sent = 0
        self._headers = {"Content-Type": "application/json", "Accept": accept}
        self._headers |= {"Authorization": f"Bearer {token}"} if token else {}
        self._idle: list[http.client.HTTPConnection] = []
        """Open connections that nobody uses."""
        self._scheme, self._place, self._path = address(self.url)

    def send(self, method: str, path: str, body: Any = None, *, retry_s: float | None = None) -> Answer:
        """One request, tried again while the server is busy or away."""
        url, waited, reason = self.url + path, 0.0, ""
        content = None if body is None else json.dumps(body, separators=(",", ":"), allow_nan=False).encode()
        patience = self.retry_s if retry_s is None else retry_s
        with self._lock:
            self._sent += 1
            number = self._sent
        for attempt in itertools.count():
            start = time.monotonic()
            answer, reason = self._try(method, path, content)
            if answer is not None and answer.is_success:
                return answer
            if answer is not None and answer.status not in RETRIED:
                raise RequestRefused(f"{url} refused the request: {reason}", answer.status)
            pause = max(retry_after(answer), self._pause(number, attempt))
            waited += time.monotonic() - start + pause
            if waited > patience:
                break
            with self._lock:
                self.retries += 1
            self._sleep(pause)
        raise ServerAway(f"no answer from {url} within {patience:g} s ({reason})")

    def close(self) -> None:
        with self._lock:
            idle, self._idle = self._idle, []
        for connection in idle:
            connection.close()

    def _try(self, method: str, path: str, content: bytes | None) -> tuple[Answer | None, str]:
        """The answer, if any, and what is wrong with it."""
        with self._free:
            try:
                answer = self._ask(method, path, content)
            except FAILURES as error:
                return None, f"{type(error).__name__}: {error}"
        return answer, f"{answer.status}, {error_message(answer)}" if not answer.is_success else ""

    def _ask(self, method: str, path: str, content: bytes | None) -> Answer:
        """Over an idle connection, or a new one where there is none that the server has left open."""
        with self._lock:
            connection = self._idle.pop() if self._idle else None
        if connection is None or is_closed(connection):
            kind = http.client.HTTPSConnection if self._scheme == "https" else http.client.HTTPConnection
            connection = kind(self._place, timeout=self.timeout)
        try:
            connection.request(method, self._path + path, content, self._headers)
            response = connection.getresponse()
            answer = Answer(self.url + path, response.status, response.headers, whole(response, seconds=self.timeout))
            # else the connection takes no other request
            response.close()
        except BaseException:
            connection.close()
            raise
        with self._lock:
            self._idle.append(connection)
        return answer

    def _pause(self, number: int, attempt: int) -> float:
        """Twice as long each time, and half of it by chance: clients that failed together must not return together."""
        shortened = min(MAX_DELAY_S, MIN_DELAY_S * 2.0 ** min(attempt, 16))
        return shortened * (0.5 + 0.5 * float(numpy_rng(self.seed, "jitter", number, attempt).random()))


def is_closed(connection: http.client.HTTPConnection) -> bool:
    """Whether the server has ended an idle connection: it has something to read, which is its end."""
    if connection.sock is None:
        return True
    poll = select.poll()
    poll.register(connection.sock, select.POLLIN)
    if poll.poll(0):
        connection.close()
        return True
    return False


def address(url: str) -> tuple[str, str, str]:
    """Scheme, host with port, and path of a server's address."""
    try:
        parts = urlsplit(url)
        known = parts.scheme in ("http", "https") and parts.hostname and (parts.port or 1) and "@" not in parts.netloc
    except ValueError:
        known = False
    if not known:
        raise ConfigError(f"{url[:200]} is no address of a server: write http://HOST:PORT")
    return parts.scheme, parts.netloc, parts.path


def whole(response: http.client.HTTPResponse, *, seconds: float) -> bytes:
    """The body, read within bounds: neither one without an end nor one that drips is waited for."""
    parts, size, deadline = [], 0, time.monotonic() + seconds
    while part := response.read1(CHUNK_BYTES):
        parts.append(part)
        size += len(part)
        if size > MAX_ANSWER_BYTES:
            raise OSError(f"an answer of more than {MAX_ANSWER_BYTES} bytes")
        if time.monotonic() > deadline:
            raise TimeoutError(f"the answer was not whole after {seconds:g} s")
    if response.length:
        raise http.client.IncompleteRead(b"".join(parts), response.length)
    return b"".join(parts)


def error_message(answer: Answer) -> str:
    """What an error response says, in one line."""
    try:
        text = str(answer.json()["error"]["message"])
    except (ValueError, KeyError, TypeError, RecursionError):
        text = answer.content.decode(errors="replace")
    return " ".join(text.split())[:200]


def retry_after(answer: Answer | None) -> float:
    """Seconds that a response asks to wait, given as a number or a date; 0 where it says nothing that can be read."""
    given = "" if answer is None else answer.headers.get("Retry-After", "")
    try:
        return min(MAX_RETRY_AFTER_S, max(0.0, float(given)))
    except ValueError:
        pass
    try:
        return min(MAX_RETRY_AFTER_S, max(0.0, parsedate_to_datetime(given).timestamp() - time.time()))
    except (ValueError, TypeError):
        return 0.0
