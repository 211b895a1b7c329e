"""Attack the VLM server: bodies, pictures, headers and many parts, on loopback, with a model that only echoes.

python tools/attack_server.py takes about twenty seconds.
"""

from __future__ import annotations

import base64
import io
import json
import os
import random
import struct
import sys
import threading
import time
import zlib
from collections.abc import Iterator, Sequence
from functools import partial
from typing import Any

from PIL import Image

from attacks import Address, Outcome, ask, attempt, report, send_headers, serve_in_thread

PARTS = 1_200_000
SEED, FUZZED = 0, 60
SOURCES = ("file:///etc/passwd", "http://169.254.169.254/", "ftp://x", "/etc/passwd", "gopher://x", "jar:x", "@@", "")


def chat(content: Any) -> bytes:
    return json.dumps({"messages": [{"role": "user", "content": content}], "max_tokens": 8}).encode()


def picture(data: bytes) -> bytes:
    return chat([{"type": "image", "image": base64.b64encode(data).decode()}])


def png(width: int, height: int, rows: bytes = b"") -> bytes:
    """A PNG whose header claims a size, whatever it holds."""

    def chunk(kind: bytes, data: bytes) -> bytes:
        return struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data))

    header = struct.pack(">IIBBBBB", width, height, 8, 2, 0, 0, 0)
    return b"\x89PNG\r\n\x1a\n" + chunk(b"IHDR", header) + chunk(b"IDAT", zlib.compress(rows)) + chunk(b"IEND", b"")


def bodies() -> Iterator[tuple[str, bytes, set[int]]]:
    """Names, bodies, and the statuses that may come back."""
    part = b'{"type":"text","text":""}'
    yield "parts", b'{"messages":[{"role":"user","content":[' + b",".join([part] * PARTS) + b"]}]}", {413}
    yield "values in an unknown field", b'{"x":[' + b"0," * 10_000_000 + b"0]}", {413}
    yield "strings without commas", b'""' * 10_000_000, {413}
    yield "nesting", b"[" * 1_000_000, {413}
    yield "a string without an end", b'{"messages": "' + b'\\"' * 5_000_000, {400}
    yield "a huge number", b'{"messages": ' + b"9" * 100_000 + b"}", {400, 422}
    yield "a body too large", b'{"messages": "' + b"x" * (80 << 20) + b'"}', {413}
    yield "a lone surrogate", b'{"messages":[{"role":"user","content":"\\ud800"}]}', {422}
    for source in SOURCES:
        yield f"an image {source}", chat([{"type": "image_url", "image_url": {"url": source}}]), {422}
    for width, height in ((60_000, 60_000), (2**31 - 1, 1), (0, 0), (4096, 4096)):
        yield f"a header of {width}x{height}", picture(png(width, height)), {413, 422}
    large = {"type": "image", "image": base64.b64encode(png(4096, 4096)).decode()}
    yield "eight pictures of 4096x4096", chat([large] * 8), {413}
    drawn, noise = io.BytesIO(), random.Random(SEED)
    Image.frombytes("RGB", (32, 32), noise.randbytes(3072)).save(drawn, "PNG")
    for number in range(FUZZED):
        data = bytearray(drawn.getvalue())
        for _ in range(1 + number % 8):
            data[noise.randrange(8, len(data))] = noise.randrange(256)
        yield f"fuzzed picture {number}", picture(bytes(data)), {200, 413, 422}


def post(address: Address, body: bytes, expected: set[int]) -> str | None:
    status, answer = ask(address, "/generate", method="POST", body=body)
    one_line = status == 200 or (b"\n" not in answer and "error" in json.loads(answer))
    return None if status in expected and one_line else f"status {status}: {answer[:100]!r}"


def answers_meanwhile(address: Address, body: bytes) -> str | None:
    """How long /health waits while a large body is refused."""
    sender = threading.Thread(target=post, args=(address, body, {413}), daemon=True)
    sender.start()
    slowest = 0.0
    while sender.is_alive():
        start = time.monotonic()
        ask(address, "/health")
        slowest = max(slowest, time.monotonic() - start)
    return None if slowest < 3.0 else f"/health took {slowest:.1f} s"


def attack(parts: Sequence[tuple[str, bytes, set[int]]] = ()) -> Iterator[Outcome]:
    from lookact.judges.server.app import create_app
    from lookact.judges.server.batching import Reply
    from lookact.serving.limits import Limits

    def echo(prompts: Sequence[Any], dropped: Any) -> Iterator[tuple[int, Reply]]:
        yield from ((index, Reply("fine", 1, 1)) for index in range(len(prompts)))

    hidden = f"{os.sep}srv{os.sep}weights"
    with serve_in_thread(create_app(echo, model=hidden), Limits()) as address:
        for name, body, expected in parts or list(bodies()):
            yield attempt(name, partial(post, address, body, expected))
        yield attempt("health beside a large body", partial(answers_meanwhile, address, next(bodies())[1]))
        yield from send_headers(address, "/generate")
        rebound = partial(ask, address, "/v1/models", host="rebind.evil")
        yield attempt("a foreign Host", lambda: None if rebound()[0] == 400 else "taken")
        health = partial(ask, address, "/health")
        yield attempt("health", lambda: None if health()[0] == 200 and hidden.encode() not in health()[1] else "a path")


if __name__ == "__main__":
    sys.exit(report(attack()))
