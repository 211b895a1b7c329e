"""Asks a VLM over HTTP: this project's server, or any that speaks OpenAI's chat completions.

Loads no torch. A server that is busy, restarting or not there yet is retried for `retry_s`.
"""

from __future__ import annotations

import base64
import io
import os
import threading
import time
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import Any, TypeVar

import httpx
import numpy as np
from PIL import Image as Pillow

from lookact.errors import JudgeError, JudgeRefused
from lookact.serving.client import Answer, HttpClient, RequestRefused, ServerAway
from lookact.types import Image

TOP_LOGPROBS = 20
"""As many as OpenAI's API gives."""
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
        self.spec = spec
        self.requests = 0
        """Answered, for the budget."""
        self._lock = threading.Lock()
        self._model = spec.model
        self._http = HttpClient(
            # an address may be given with /v1, as OpenAI's clients take it
            spec.url.rstrip("/").removesuffix("/v1"),
            token=spec.token,
            timeout=spec.timeout,
            retry_s=spec.retry_s,
            concurrency=spec.concurrency,
            seed=spec.seed,
            sleep=sleep,
        )

    @property
    def retries(self) -> int:
        return self._http.retries

    @property
    def model(self) -> str:
        """The model's name, asked of the server once where it was not given."""
        if not self._model:
            self._model = str(self._read(self._send("GET", "/v1/models"), "data", 0, "id"))
        return self._model

    def ask(self, content: Content, *, max_tokens: int, temperature: float = 0.0) -> str:
        """The reply to one user message."""
        answer = self._complete(content, max_tokens=max_tokens, temperature=temperature)
        return str(self._read(answer, "choices", 0, "message", "content") or "")

    def first_token(self, content: Content) -> dict[str, float]:
        """Log-probabilities of the likeliest first tokens of a reply; those that differ by blanks or case are one."""
        answer = self._complete(content, max_tokens=1, temperature=0.0, logprobs=True, top_logprobs=TOP_LOGPROBS)
        listed = self._read(answer, "choices", 0, "logprobs", "content", 0, "top_logprobs")
        likely: dict[str, float] = {}
        for told in listed:
            token = str(told["token"]).strip().lower()
            likely[token] = float(np.logaddexp(likely.get(token, -np.inf), told["logprob"]))
        return likely

    def _complete(self, content: Content, **settings: Any) -> Answer:
        messages = [{"role": "user", "content": [encode_part(part) for part in content]}]
        answer = self._send("POST", "/v1/chat/completions", {"model": self.model, "messages": messages, **settings})
        with self._lock:
            self.requests += 1
        return answer

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

    def _send(self, method: str, path: str, body: Any = None) -> Answer:
        """One request, tried again while the server is busy or away, for up to `retry_s`."""
        try:
            return self._http.send(method, path, body)
        except RequestRefused as error:
            raise JudgeRefused(str(error)) from error
        except ServerAway as error:
            remedy = "start a server with lookact serve, or give the right address in SERVER_HOST and SERVER_PORT"
            raise JudgeError(f"{error}: {remedy}") from error

    def _read(self, answer: Answer, *path: str | int) -> Any:
        try:
            value = answer.json()
            for step in path:
                value = value[step]
        except (ValueError, KeyError, IndexError, TypeError) as error:
            raise JudgeRefused(f"{answer.url} does not answer as OpenAI's API does: is it a VLM server?") from error
        return value


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
