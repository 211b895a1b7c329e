"""Attack the policy server: handshakes, frames, messages that lie, floods of sessions, clients that stall, and a kill.

python tools/attack_policy_server.py takes about fifteen seconds.
"""

from __future__ import annotations

import json
import random
import socket
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any

import msgpack
import numpy as np
from websockets.exceptions import ConnectionClosed, InvalidStatus
from websockets.sync.client import ClientConnection, connect

from attacks import Address, Outcome, ask, attempt, ends_on_sigterm, report, send_headers, served
from lookact.rollout.policy_server.codec import pack

SEED, FUZZED, MOST = 0, 200, 8
ARRAY = {"__ndarray__": True, "dtype": "|u1", "shape": [2, 2], "data": b"\0" * 4}
PICTURE = {"__image__": True, "format": "png", "data": b"\x89PNG\r\n\x1a\n" + b"\0" * 64}
LIES: dict[str, Any] = {
    "too few bytes": ARRAY | {"shape": [2**40]},
    "a shape beyond memory": ARRAY | {"shape": [2**62, 2**62, 0]},
    "a negative shape": ARRAY | {"shape": [-4]},
    "a thousand axes": ARRAY | {"shape": [1] * 200},
    "a dtype of objects": ARRAY | {"dtype": "|O"},
    "a dtype that is code": ARRAY | {"dtype": "__import__('os').system('true')"},
    "a torn picture": PICTURE,
    "a picture of a strange kind": PICTURE | {"data": b"%PDF-1.4"},
    "an empty picture": ARRAY | {"shape": [0, 4, 3], "data": b""},
    "a picture of floats": {"__ndarray__": True, "dtype": "<f4", "shape": [1, 1, 3], "data": b"\0" * 12},
    "a text for a picture": "head",
    "a map for a picture": {"a": {"b": {"c": 1}}},
}
BYTES = {
    "nothing": b"",
    "nesting": b"\x91" * 1_000_000,
    "a map of maps": b"\x81\xa1a" * 300_000,
    "a million empty maps": b"\xdd\x00\x0f\x42\x40" + b"\x80" * 1_000_000,
    "lists of lists": (b"\xdc\x00\xff" + (b"\xdc\x00\xff" + b"\x90" * 255) * 255),
    "four billion values told": b"\xdd\xff\xff\xff\xff",
    "four billion bytes told": b"\xc6\xff\xff\xff\xff",
    "an extension": b"\xc7\x04\x2a\0\0\0\0",
    "a timestamp": b"\xd6\xff\0\0\0\0",
    "no UTF-8": b"\xa2\xff\xfe",
    "a pickle": b"\x80\x04\x95 \0\0\0\0\0\0\0\x8c\x05posix\x94\x8c\x06system\x94\x93\x94\x8c\x04true\x94\x85\x94R\x94.",
    "more behind the end": b"\x80\x80",
    "what never was": b"\xc1",
}


def observation() -> dict[str, Any]:
    return {"head": np.zeros((16, 16, 3), np.uint8), "state": np.zeros(3, np.float32), "instruction": "go"}


def joined(address: Address, path: str = "/") -> ClientConnection:
    return connect(f"ws://{address[0]}:{address[1]}{path}", proxy=None, compression=None)


def acts(talk: ClientConnection) -> str | None:
    """Whether the connection still gives actions."""
    talk.send(pack(observation(), binary_names=True))
    answer = talk.recv(timeout=10)
    return None if isinstance(answer, bytes) and b"actions" in answer else f"answered {answer[:80]!r}"


def refused(address: Address, data: bytes | str) -> str | None:
    """A message is answered by one line, and the connection goes on."""
    with joined(address) as talk:
        talk.recv()
        talk.send(data)
        answer = talk.recv(timeout=10)
        if not isinstance(answer, str) or "\n" in answer:
            return f"answered {answer[:80]!r}"
        return acts(talk)


def refused_by_vla_eval(address: Address, data: bytes) -> str | None:
    with joined(address, "/vla-eval") as talk:
        talk.send(data)
        answer = msgpack.unpackb(talk.recv(timeout=10))
        return None if answer["type"] == "error" and "\n" not in answer["payload"]["error"] else f"answered {answer}"


def fuzz(address: Address) -> str | None:
    """An observation that is right, with bytes of it changed: an action or one line, and the connection goes on."""
    noise, whole = random.Random(SEED), pack(observation(), binary_names=True)
    with joined(address) as talk:
        talk.recv()
        for _ in range(FUZZED):
            data = bytearray(whole)
            for _ in range(noise.randrange(1, 6)):
                data[noise.randrange(len(data))] = noise.randrange(256)
            talk.send(bytes(data))
            answer = talk.recv(timeout=10)
            if isinstance(answer, str) and "\n" in answer:
                return f"answered {answer[:80]!r}"
        return acts(talk)


def too_large(address: Address) -> str | None:
    with joined(address) as talk:
        talk.recv()
        try:
            talk.send(b"\0" * (40 << 20))
            talk.recv(timeout=10)
        except ConnectionClosed as closed:
            code = closed.rcvd.code if closed.rcvd else 1009
            return None if code == 1009 else f"closed with {code}"
    return "taken"


def flood(address: Address) -> str | None:
    """No more sessions than allowed, and all are given back."""
    taken = [joined(address) for _ in range(MOST)]
    try:
        joined(address)
        return "one session too many"
    except InvalidStatus as error:
        if error.response.status_code != 429:
            return f"status {error.response.status_code}"
    for talk in taken:
        talk.socket.close()
    for _ in range(100):
        if json.loads(ask(address, "/health")[1])["sessions"] == 0:
            return None
        time.sleep(0.05)
    return "sessions left"


def frames(address: Address, data: bytes) -> str | None:
    """Bytes after a handshake that are no frames of a client's: the connection is closed."""
    key = b"Sec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\nSec-WebSocket-Version: 13\r\n"
    asked = b"GET / HTTP/1.1\r\nHost: 127.0.0.1\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n" + key + b"\r\n"
    with socket.create_connection(address, timeout=10.0) as raw:
        raw.sendall(asked)
        if not raw.recv(4096).startswith(b"HTTP/1.1 101"):
            return "no handshake"
        raw.sendall(data)
        while raw.recv(65536):
            pass
    return None


def closed_by(address: Address, headers: dict[str, str], status: int) -> str | None:
    try:
        connect(f"ws://{address[0]}:{address[1]}/", additional_headers=headers, proxy=None).close()
    except InvalidStatus as error:
        found = error.response.status_code
        return None if found == status and b"\n" not in error.response.body else f"status {found}"
    return "taken"


def make_checkpoint(folder: Path) -> Path:
    """A tiny policy that was never trained."""
    from lookact.models.vla.checkpoint import make_vla, save_encoders
    from lookact.models.vla.encoders import TextSpec, VisionSpec
    from lookact.models.vla.policy import PolicySpec
    from lookact.training.weights import write_weights

    spec = PolicySpec(("head",), state_size=3, action_size=2, width=16, layers=1, heads=2, memory=4)
    vision = VisionSpec(image_size=16, patch=8, hidden=32, layers=1, pool_queries=2)
    policy = make_vla(spec, vision, TextSpec(hidden=32, length=12), corpus=["go"], seed=0)
    write_weights(policy, folder)
    save_encoders(policy, folder)
    return folder


def tries(address: Address) -> Iterator[tuple[str, Callable[[], str | None]]]:
    for name, data in BYTES.items():
        yield name, partial(refused, address, data)
        yield f"{name}, to vla-eval's form", partial(refused_by_vla_eval, address, data)
    for name, value in LIES.items():
        sent = observation() | {"head": value}
        yield name, partial(refused, address, pack(sent, binary_names=True))
    for name, state in {"no numbers": "near", "NaN": [float("nan")] * 3, "too many": list(range(200))}.items():
        yield f"a state of {name}", partial(refused, address, pack(observation() | {"state": state}, binary_names=True))
    yield "a text message", partial(refused, address, '{"head": 1}')
    yield (
        "a type that is none",
        partial(refused_by_vla_eval, address, msgpack.packb({"type": "x" * 999, "payload": {}})),
    )
    yield "fuzzed observations", partial(fuzz, address)
    yield "a message too large", partial(too_large, address)
    yield "frames without a mask", partial(frames, address, b"\x82\x05hello")
    yield "a frame of 2^63 bytes", partial(frames, address, b"\x82\xff" + b"\xff" * 8 + b"\0" * 4)
    yield "a reserved opcode", partial(frames, address, b"\x83\x80\0\0\0\0")
    yield "a ping too large", partial(frames, address, b"\x89\xfe\x01\x00\0\0\0\0" + b"x" * 256)
    yield "a page in a browser", partial(closed_by, address, {"Origin": "http://evil.example"}, 403)
    yield "a foreign Host", lambda: None if ask(address, "/metadata", host="rebind.evil")[0] == 400 else "taken"
    yield "a flood of sessions", partial(flood, address)
    yield "health", lambda: None if ask(address, "/health")[0] == 200 else "gone"


def attack(folder: Path) -> Iterator[Outcome]:
    words = ("serve-policy", str(make_checkpoint(folder)), "--port", "0", "--max-sessions", str(MOST))
    with served(*words) as (address, process):
        for name, work in tries(address):
            yield attempt(name, work)
        yield from send_headers(address, "/metadata")
        talk = joined(address)
        yield "SIGTERM with a session open", ends_on_sigterm(process)
        talk.socket.close()


if __name__ == "__main__":
    with tempfile.TemporaryDirectory() as made:
        sys.exit(report(attack(Path(made))))
