"""Asks a VLM over HTTP: this project's server, or any that speaks OpenAI's chat completions.

Loads no torch. A server that is busy, restarting or not there yet is retried for `retry_s`.
"""

from __future__ import annotations

import base64
import io
import itertools
import os
import threading
import time
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from email.utils import parsedate_to_datetime
from typing import Any, TypeVar

import httpx
from PIL import Image as Pillow

from lookact.errors import JudgeError
from lookact.seeding import numpy_rng
from lookact.types import Image

RETRIED = frozenset((408, 425, 429, 500, 502, 503, 504))
"""Status codes that are retried."""
MIN_DELAY_S, MAX_DELAY_S = 0.25, 10.0
"""Seconds before the first retry, and the most between two."""
MAX_RETRY_AFTER_S = 300.0
"""A server that asks for a longer pause is asked again after this one."""
Content = Sequence[str | Image]
"""Texts and images of one user message, in their order."""
Item = TypeVar("Item")
Result = TypeVar("Result")


@dataclass(frozen=True)
class ClientSpec:
    """Where the server is and how long it is retried."""

    url: str
    model: str = ""
    """Empty: the first that the server lists."""
    token: str = ""
    timeout: float = 120.0
    """Seconds for one answer."""
    retry_s: float = 60.0
    """Seconds a request is tried again while the server is busy or away; 0 gives up at the first failure."""
    concurrency: int = 16
    """Requests under way at once."""
    seed: int = 0
    """Of the jitter between retries."""


class JudgeClient:
    """Sends single user messages and returns what the model said; safe to use from many threads."""

    def __init__(self, spec: ClientSpec, *, sleep: Callable[[float], None] = time.sleep) -> None:
        self.spec, self._sleep = spec, sleep
        self.requests = 0
        """Answered, for the budget."""
        self.retries = 0
        self._lock = threading.Lock()
        self._model = spec.model
        self._sent = 0
        headers = {"Authorization": f"Bearer {spec.token}"} if spec.token else {}
        bounds = httpx.Limits(max_connections=spec.concurrency, max_keepalive_connections=spec.concurrency)
        # a proxy from the environment must not stand between this and a local server
        self._http = httpx.Client(headers=headers, timeout=spec.timeout, limits=bounds, trust_env=False)

    @property
    def model(self) -> str:
        """The model's name, asked of the server once where it was not given."""
        if not self._model:
            self._model = str(self._read(self._send("GET", "/v1/models"), "data", 0, "id"))
        return self._model

    def ask(self, content: Content, *, max_tokens: int, temperature: float = 0.0) -> str:
        """The reply to one user message."""
        body = {
            "model": self.model,
            "messages": [{"role": "user", "content": [encode_part(part) for part in content]}],
            "max_tokens": max_tokens,
            "temperature": temperature,
        }
        answer = self._send("POST", "/v1/chat/completions", body)
        text = self._read(answer, "choices", 0, "message", "content")
        with self._lock:
            self.requests += 1
        return str(text or "")

    def map(self, function: Callable[[Item], Result], items: Sequence[Item]) -> list[Result]:
        """`function` of every item, `concurrency` at a time, in order; the first failure stops those not begun."""
        if len(items) < 2:
            return [function(item) for item in items]
        with ThreadPoolExecutor(min(self.spec.concurrency, len(items))) as pool:
            futures = [pool.submit(function, item) for item in items]
            try:
                return [future.result() for future in futures]
            except BaseException:
                pool.shutdown(cancel_futures=True)
                raise

    def close(self) -> None:
        self._http.close()

    def _send(self, method: str, path: str, body: Any = None) -> httpx.Response:
        """One request, tried again while the server is busy or away, for up to `retry_s`."""
        url, waited = self.spec.url.rstrip("/") + path, 0.0
        with self._lock:
            self._sent += 1
            number = self._sent
        for attempt in itertools.count():
            start = time.monotonic()
            answer, reason = self._try(method, url, body)
            if answer is not None and answer.is_success:
                return answer
            if answer is not None and answer.status_code not in RETRIED:
                raise JudgeError(f"{url} refused the request: {reason}")
            pause = max(retry_after(answer), self._pause(number, attempt))
            waited += time.monotonic() - start + pause
            if waited > self.spec.retry_s:
                break
            with self._lock:
                self.retries += 1
            self._sleep(pause)
        raise JudgeError(
            f"no answer from {url} within {self.spec.retry_s:g} s ({reason}): start a server with lookact serve, or "
            "give the right address in SERVER_HOST and SERVER_PORT"
        )

    def _try(self, method: str, url: str, body: Any) -> tuple[httpx.Response | None, str]:
        """The response, if any, and what is wrong with it."""
        try:
            answer = self._http.request(method, url, json=body)
        except httpx.TransportError as error:
            return None, f"{type(error).__name__}: {error}"
        return answer, f"{answer.status_code}, {error_message(answer)}" if not answer.is_success else ""

    def _read(self, answer: httpx.Response, *path: str | int) -> Any:
        try:
            value = answer.json()
            for step in path:
                value = value[step]
        except (ValueError, KeyError, IndexError, TypeError) as error:
            raise JudgeError(f"{answer.url} does not answer as OpenAI's API does: is it a VLM server?") from error
        return value

    def _pause(self, number: int, attempt: int) -> float:
        """Twice as long each time, and half of it by chance: clients that failed together must not return together."""
        whole = min(MAX_DELAY_S, MIN_DELAY_S * 2.0 ** min(attempt, 16))
        return whole * (0.5 + 0.5 * float(numpy_rng(self.spec.seed, "jitter", number, attempt).random()))


def server_url() -> str:
    """The server that `SERVER_HOST` and `SERVER_PORT` name, by default on this machine at port 8000."""
    host, port = os.environ.get("SERVER_HOST") or "127.0.0.1", os.environ.get("SERVER_PORT") or "8000"
    return f"http://{f'[{host}]' if ':' in host else host}:{port}"


def wait_until_ready(url: str, *, seconds: float, sleep: Callable[[float], None] = time.sleep) -> None:
    """Returns once the server answers /health; raises where it does not in time."""
    deadline = time.monotonic() + seconds
    while True:
        try:
            if httpx.get(f"{url.rstrip('/')}/health", timeout=5.0, trust_env=False).is_success:
                return
        except httpx.TransportError:
            pass
        if time.monotonic() > deadline:
            raise JudgeError(f"no server at {url} after {seconds:g} s: start it with lookact serve")
        sleep(0.2)


def error_message(answer: httpx.Response) -> str:
    """What an error response says, in one line."""
    try:
        text = str(answer.json()["error"]["message"])
    except (ValueError, KeyError, TypeError):
        text = answer.text
    return " ".join(text.split())[:200]


def retry_after(answer: httpx.Response | None) -> float:
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


def encode_part(part: str | Image) -> dict[str, Any]:
    """A text or an image as OpenAI's messages hold them."""
    if isinstance(part, str):
        return {"type": "text", "text": part}
    return {"type": "image_url", "image_url": {"url": f"data:image/png;base64,{encode_png(part)}"}}


def encode_png(image: Image) -> str:
    """An image (h, w, 3) as a PNG file in base64."""
    file = io.BytesIO()
    # lossless whatever the level; the lowest costs least time
    Pillow.fromarray(image).save(file, "PNG", compress_level=1)
    return base64.b64encode(file.getvalue()).decode()
