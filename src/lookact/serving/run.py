"""Runs the application on a socket until a signal ends it; work that was accepted is finished first."""

from __future__ import annotations

import asyncio
import errno
import os
import signal
import socket
import threading
import time
from typing import Any

import uvicorn

from lookact.errors import ConfigError
from lookact.serving.limits import Limits

THREAD_SECONDS = 2.0


def bind(host: str, port: int) -> socket.socket:
    """A bound socket that does not listen yet: a port in use is found out before a model is loaded."""
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    # named as TCP, or asyncio leaves the delay on that makes a second small write wait for 40 ms
    bound = socket.socket(family, socket.SOCK_STREAM, socket.IPPROTO_TCP)
    bound.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    try:
        bound.bind((host, port))
    except (OSError, OverflowError) as error:
        bound.close()
        taken = isinstance(error, OSError) and error.errno == errno.EADDRINUSE
        reason = "another program uses it: choose another --port" if taken else str(error)
        raise ConfigError(f"cannot serve on {host} port {port}: {reason}") from error
    return bound


def serve(app: Any, bound: socket.socket, limits: Limits, *, websockets: bool = False) -> None:
    """Serve until SIGTERM or SIGINT; a second SIGINT does not wait."""
    # uvicorn raises its signal again when it is done: a server that was asked to end has not failed
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, lambda *_: None)
    asyncio.run(run_and_leave(make_server(app, limits, websockets=websockets), bound, limits))


async def run_and_leave(server: uvicorn.Server, bound: socket.socket, limits: Limits) -> None:
    """Runs, then leaves a moment for threads to end: one that hangs in a read would keep the process for ever."""
    try:
        await run(server, bound, limits)
    finally:
        last = threading.Timer(THREAD_SECONDS, os._exit, (0,))
        last.daemon = True
        last.start()


def make_server(app: Any, limits: Limits, *, websockets: bool = False) -> uvicorn.Server:
    """`websockets` takes connections of that kind too, with messages of up to `limits.body_bytes`."""
    config = uvicorn.Config(
        app,
        http="h11",
        ws="websockets-sansio" if websockets else "none",
        ws_max_size=limits.body_bytes,
        ws_per_message_deflate=False,
        lifespan="on",
        log_config=None,
        access_log=False,
        server_header=False,
        proxy_headers=False,
        limit_concurrency=limits.connections,
        timeout_keep_alive=int(max(1, limits.header_seconds)),
        timeout_graceful_shutdown=int(limits.request_seconds) + 5,
    )
    return uvicorn.Server(config)


async def run(server: uvicorn.Server, bound: socket.socket, limits: Limits) -> None:
    """The server beside the watch over its connections."""
    watching = asyncio.ensure_future(watch(server, limits.header_seconds))
    try:
        await server.serve(sockets=[bound])
    finally:
        watching.cancel()


async def watch(server: uvicorn.Server, seconds: float) -> None:
    """Closes connections that send no whole request header in time; uvicorn itself would keep them for ever."""
    idle_since: dict[tuple[Any, Any], float] = {}
    while True:
        await asyncio.sleep(min(1.0, seconds / 4))
        now = time.monotonic()
        # a connection that has handled another request since the last look counts anew
        connections: set[Any] = set(server.server_state.connections)
        # a websocket's application looks after it
        idle = [(held, held.cycle) for held in connections if hasattr(held, "cycle") and is_idle(held)]
        idle_since = {key: idle_since.get(key, now) for key in idle}
        for (held, _), since in idle_since.items():
            if now - since > seconds:
                held.transport.abort()


def is_idle(connection: Any) -> bool:
    """Whether no request is being handled on it."""
    return connection.cycle is None or connection.cycle.response_complete
