"""What the attack scripts share: outcomes, child processes with a time limit, and requests to loopback."""

from __future__ import annotations

import asyncio
import http.client
import os
import re
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from functools import partial
from typing import Any
from urllib.parse import urlencode

SECONDS = 20.0
"""The longest that one attack may take."""
HEADERS = (
    b"Host: x\r\nHost: y\r\n",
    b"Host: localhost\r\nContent-Length: 5\r\nContent-Length: 6\r\n",
    b"Host: localhost\r\nContent-Length: -1\r\n",
    b"Host: localhost\r\nTransfer-Encoding: chunked, gzip\r\n",
    b"Host: localhost\r\nX: \x00\r\n",
    b"Host: localhost\r\n folded: x\r\n",
    b"Host: \xff\xfe\r\n",
    b"Host: localhost\r\nX: " + b"x" * 200_000 + b"\r\n",
)
"""Each is wrong in one way."""
Address = tuple[str, int]
Outcome = tuple[str, str]
"""An attack's name, and what went wrong; empty where it was withstood."""


def attempt(name: str, work: Callable[[], str | None]) -> Outcome:
    """Run one attack in a thread of its own: what it raises or returns went wrong, as does taking too long."""
    outcome = [f"no end within {SECONDS:g} s"]

    def run() -> None:
        try:
            outcome[0] = work() or ""
        except Exception as error:
            outcome[0] = f"{type(error).__name__}: {' '.join(str(error).split())[:200]}"

    thread = threading.Thread(target=run, daemon=True)
    thread.start()
    thread.join(SECONDS)
    return name, outcome[0]


def report(outcomes: Iterable[Outcome]) -> int:
    """Print what went wrong and a count; the exit code."""
    told = list(outcomes)
    wrong = [outcome for outcome in told if outcome[1]]
    for name, problem in wrong:
        sys.stdout.write(f"{name}: {problem}\n")
    sys.stdout.write(f"{len(told)} attacks, {len(wrong)} not withstood\n")
    return 1 if wrong else 0


def ask(
    address: Address, path: str, *, host: str = "", method: str = "GET", body: bytes = b"", **words: str
) -> tuple[int, bytes]:
    """The status and body of one request; `words` are its query."""
    connection = http.client.HTTPConnection(*address, timeout=SECONDS)
    headers = {"Content-Type": "application/json"} | ({"Host": host} if host else {})
    try:
        connection.request(method, f"{path}?{urlencode(words)}" if words else path, body=body or None, headers=headers)
        answer = connection.getresponse()
        return answer.status, answer.read()
    finally:
        connection.close()


def send_headers(address: Address, path: str) -> Iterator[Outcome]:
    """Headers that no server may take for a request."""

    def refused(headers: bytes) -> str | None:
        with socket.create_connection(address, timeout=5.0) as connection:
            told = f"POST {path} HTTP/1.1\r\nContent-Type: application/json\r\n".encode()
            connection.sendall(told + headers + b"\r\n{}")
            answer = connection.recv(200)
        return None if answer.startswith((b"HTTP/1.1 4", b"HTTP/1.1 501")) else f"{answer[:60]!r}"

    for headers in HEADERS:
        yield attempt(f"headers {headers[:40]!r}", partial(refused, headers))


def wait_for(address: Address) -> None:
    """Returns once something listens there."""
    deadline = time.monotonic() + SECONDS
    while True:
        try:
            socket.create_connection(address, timeout=1.0).close()
            return
        except OSError:
            if time.monotonic() > deadline:
                raise
            time.sleep(0.05)


@contextmanager
def served(*words: str) -> Iterator[tuple[Address, subprocess.Popen[str]]]:
    """A `lookact` command that serves on loopback: its address and process, once it has told where it listens."""
    command = [sys.executable, "-m", "lookact", *words]
    process = subprocess.Popen(
        command, stdout=subprocess.PIPE, text=True, env=os.environ | {"CUDA_VISIBLE_DEVICES": ""}
    )
    try:
        assert process.stdout is not None
        found = re.search(r"http://(127\.0\.0\.1):(\d+)", process.stdout.readline())
        assert found, f"{' '.join(words)} did not say where it listens"
        address = (found[1], int(found[2]))
        wait_for(address)
        yield address, process
    finally:
        process.kill()
        process.wait()


@contextmanager
def serve_in_thread(app: Any, limits: Any) -> Iterator[Address]:
    """An ASGI application served on loopback from a thread of this process."""
    from lookact.serving.run import bind, make_server, run

    bound, server = bind("127.0.0.1", 0), make_server(app, limits)
    thread = threading.Thread(target=asyncio.run, args=(run(server, bound, limits),), daemon=True)
    thread.start()
    try:
        address = bound.getsockname()
        wait_for(address)
        yield address
    finally:
        server.should_exit = True
        thread.join(SECONDS)


def ends_on_sigterm(process: subprocess.Popen[str]) -> str:
    """What is wrong with how a process ends when it is asked to."""
    start = time.monotonic()
    process.terminate()
    try:
        code = process.wait(SECONDS)
    except subprocess.TimeoutExpired:
        return f"still there {time.monotonic() - start:.0f} s after SIGTERM"
    return "" if code == 0 else f"exit code {code} on SIGTERM"
