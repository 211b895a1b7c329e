"""Server subprocess: start, health check, stop, restart."""

from __future__ import annotations

import ctypes
import hmac
import logging
import os
import shlex
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

import httpx

from lookact.errors import EngineError

logger = logging.getLogger(__name__)
POLL = 0.2
"""Seconds between health checks of a server that is coming up."""
GRACE = 10.0
"""Seconds a server has to end by itself."""
KEY = "VLLM_API_KEY"
"""The variable by which a server of ours is told its key: other users see a command line, not an environment."""
DIE_WITH_PARENT = 1
"""PR_SET_PDEATHSIG of Linux's prctl."""


class KeyMiddleware:
    """ASGI middleware that lets in who knows the key in the environment; `/health` is open.

    vLLM's own key guards the paths below /v1 alone, and not those that load weights or call into its workers.
    """

    def __init__(self, app: Any) -> None:
        self.app, self.expected = app, f"Bearer {os.environ[KEY]}".encode()

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        given = dict(scope.get("headers", ())).get(b"authorization", b"")
        if scope["type"] == "lifespan" or scope.get("path") == "/health" or hmac.compare_digest(given, self.expected):
            await self.app(scope, receive, send)
        elif scope["type"] == "http":
            await send({"type": "http.response.start", "status": 401, "headers": [(b"content-length", b"0")]})
            await send({"type": "http.response.body", "body": b""})


class ServerProcess:
    """Runs `command(port)` with its output in `log`; the server answers GET `health` with 200 once it is up."""

    def __init__(
        self,
        command: Callable[[int], Sequence[str]],
        *,
        log: Path,
        timeout_s: float,
        env: Mapping[str, str] | None = None,
        health: str = "/health",
    ) -> None:
        self.command, self.log, self.timeout_s, self.env, self.health = command, log, timeout_s, env or {}, health
        self.starts = 0
        self.port = 0
        self._process: subprocess.Popen[bytes] | None = None

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    @property
    def pid(self) -> int | None:
        return None if self._process is None else self._process.pid

    def start(self) -> None:
        """Starts the server and returns once it is healthy. It ends with the thread that started it."""
        self.port = free_port()
        self.log.parent.mkdir(parents=True, exist_ok=True)
        command = self.command(self.port)
        with self.log.open("ab") as output:
            output.write(f"{shlex.join(command)}\n".encode())
            output.flush()
            self._process = subprocess.Popen(
                command,
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=subprocess.STDOUT,
                env={**os.environ, **self.env},
                start_new_session=True,
                preexec_fn=die_with_parent,
            )
        self.starts += 1
        self._wait()
        logger.info("server %d is up at %s", self._process.pid, self.url)

    def restart(self) -> None:
        """Ends what is left of the server and starts a new one."""
        self.stop()
        self.start()

    def alive(self) -> bool:
        return self._process is not None and self._process.poll() is None

    def healthy(self) -> bool:
        """Whether the process runs and answers."""
        return self.alive() and answers(self.url + self.health)

    def stop(self) -> None:
        """Ends the server and all processes it started; does nothing where there is none."""
        if self._process is None:
            return
        if self.alive():
            self._signal(signal.SIGTERM)
            with suppress(subprocess.TimeoutExpired):
                self._process.wait(GRACE)
        # its children may outlive it
        self._signal(signal.SIGKILL)
        self._process.wait()
        self._process = None

    def _signal(self, number: signal.Signals) -> None:
        assert self._process is not None
        with suppress(ProcessLookupError):
            os.killpg(self._process.pid, number)

    def _wait(self) -> None:
        began = time.monotonic()
        while not self.healthy():
            assert self._process is not None
            code = self._process.poll()
            if code is not None:
                self.stop()
                raise EngineError(f"the server ended with exit code {code} before it was up: {self._last_words()}")
            if time.monotonic() - began > self.timeout_s:
                self.stop()
                raise EngineError(f"the server was not up within {self.timeout_s:g} s: see {self.log}")
            time.sleep(POLL)

    def _last_words(self) -> str:
        """The last line of its output that names an error, else where to look."""
        lines = self.log.read_text(errors="replace").splitlines()
        named = [line.strip() for line in lines if "Error" in line]
        return f"{named[-1]} (see {self.log})" if named else f"see {self.log}"


class RunningServer:
    """A server that somebody else starts, replaces and ends; it is waited for."""

    pid = None

    def __init__(self, url: str, *, timeout_s: float, health: str = "/health") -> None:
        self.url, self.timeout_s, self.health = url.rstrip("/"), timeout_s, health
        self.log, self.starts = self.url, 0

    def start(self) -> None:
        """Returns once it answers."""
        began = time.monotonic()
        while not answers(self.url + self.health):
            if time.monotonic() - began > self.timeout_s:
                raise EngineError(f"no server answered at {self.url} within {self.timeout_s:g} s: is it up?")
            time.sleep(POLL)
        self.starts += 1

    restart = start

    def stop(self) -> None:
        pass


def answers(url: str) -> bool:
    """Whether a GET is answered with 200."""
    try:
        # a proxy from the environment must not stand between this and a local server
        return httpx.get(url, timeout=5.0, trust_env=False).status_code == 200
    except httpx.HTTPError:
        return False


def free_port() -> int:
    """A port that nobody listens on now."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
        return port


def die_with_parent() -> None:
    """Runs in the new process: a trainer that is killed leaves no server behind."""
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(DIE_WITH_PARENT, signal.SIGTERM)
