"""Attack the environment server: bodies, headers, sessions of others, encodings that lie, floods, hanging and a kill.

python tools/attack_env_server.py takes about twenty seconds.
"""

from __future__ import annotations

import itertools
import json
import random
import sys
import threading
from collections.abc import Iterator
from functools import partial
from typing import Any

from attacks import Address, Outcome, ask, attempt, ends_on_sigterm, report, send_headers, served

SEED, FUZZED, FLOOD = 0, 150, 80
ARRAY = {"dtype": "uint8", "shape": [2, 2], "data": "AAAAAA=="}
LIES: dict[str, Any] = {
    "too few bytes": {"$array": ARRAY | {"shape": [2**31]}},
    "a shape beyond memory": {"$array": ARRAY | {"shape": [2**62, 2**62, 0]}},
    "a negative shape": {"$array": ARRAY | {"shape": [-4]}},
    "a thousand axes": {"$array": ARRAY | {"shape": [1] * 1000}},
    "a dtype of objects": {"$array": ARRAY | {"dtype": "object"}},
    "a dtype that is code": {"$array": ARRAY | {"dtype": "__import__('os').system('true')"}},
    "no base64": {"$array": ARRAY | {"data": "@@@@"}},
    "a foreign record": {"$subprocess.Popen": ["true"]},
    "a record of the wrong fields": {"$Observation": {"__class__": 1}},
    "two tags": {"$tuple": [], "$float": "nan"},
    "a pickle": {"$pickle": "gASVIAAAAAAAAACMBXBvc2l4lIwGc3lzdGVtlJOUjAR0cnVllIWUUpQu"},
}


def bodies() -> Iterator[tuple[str, str, bytes, set[int]]]:
    """Names, paths, bodies, and the statuses that may come back."""
    yield "nesting", "/reset", b"[" * 1_000_000, {400}
    yield "more nesting", "/reset", b"[" * 5_000_000, {413}
    yield "values", "/call", b'{"x":[' + b"0," * 10_000_000 + b"0]}", {413}
    maps = b'{"method":"report","episodes":[{"x":[' + b",".join([b'{"ab":1}'] * 260_000) + b"]}]}"
    yield "as many maps as a report may have", "/call", maps, {422}
    yield "a body too large", "/step", b'{"session": "' + b"x" * (80 << 20) + b'"}', {413}
    yield "a huge number", "/open", b'{"task_seed": ' + b"9" * 100_000 + b"}", {400, 422}
    yield "a lone surrogate", "/close", b'{"session": "\\ud800"}', {200, 422}
    yield "a session by its type", "/step", b'{"session": {"$tuple": []}, "turn": 1, "action": 1}', {422}
    yield "a path for a session", "/close", b'{"session": "../../etc/passwd"}', {200}
    yield "a method of the object", "/call", b'{"method": "__init__"}', {422}
    yield (
        "all starts at once",
        "/call",
        b'{"method":"specs","seed":1,"split":"x","groups":16384,"group_size":16384}',
        {422},
    )
    rooms = json.dumps({"method": "pretraining_images", "seed": 1, "rooms": list(range(9)), "per_room": 64})
    yield "all pictures at once", "/call", rooms.encode(), {422}
    episodes = b'{"method":"report","episodes":[' + b",".join([b'{"$tuple":[]}'] * 16_000) + b"]}"
    yield "episodes that are none", "/call", episodes, {422}


def post(address: Address, path: str, body: bytes, expected: set[int]) -> str | None:
    status, answer = ask(address, path, method="POST", body=body)
    one_line = status == 200 or (b"\n" not in answer and "error" in json.loads(answer))
    return None if status in expected and one_line else f"status {status}: {answer[:100]!r}"


def lie(address: Address, value: Any) -> str | None:
    """An encoding that lies, as an option and as an action, in a session that goes on afterwards."""
    session = opened(address)
    begin: dict[str, Any] = {"session": session, "seed": 1}
    step = {"session": session, "turn": 1}
    return (
        post(address, "/reset", json.dumps({**begin, "options": {"start_seed": value}}).encode(), {422})
        or post(address, "/reset", json.dumps(begin).encode(), {200})
        or post(address, "/step", json.dumps({**step, "action": value}).encode(), {422})
        or post(address, "/reset", json.dumps(begin).encode(), {200})
        or post(address, "/close", json.dumps({"session": session}).encode(), {200})
    )


def opened(address: Address) -> str:
    status, answer = ask(address, "/open", method="POST", body=b"{}")
    assert status == 200, answer
    return str(json.loads(answer)["session"])


def fuzz(address: Address) -> str | None:
    """A request that is right, with bytes of it changed."""
    noise, session = random.Random(SEED), opened(address)
    whole = json.dumps({"session": session, "seed": 7, "options": {"start_seed": 1, "scene_seed": {"$tuple": [1]}}})
    for _ in range(FUZZED):
        body = bytearray(whole.encode())
        for _ in range(noise.randrange(1, 6)):
            body[noise.randrange(len(body))] = noise.randrange(256)
        if wrong := post(address, "/reset", bytes(body), {200, 400, 404, 422}):
            return wrong
    return post(address, "/close", json.dumps({"session": session}).encode(), {200})


def flood(address: Address, most: int) -> str | None:
    """Sessions from many clients at once: no more than allowed, and all are given back."""
    answers: list[tuple[int, bytes]] = []

    def client() -> None:
        answers.append(ask(address, "/open", method="POST", body=b"{}"))

    threads = [threading.Thread(target=client) for _ in range(FLOOD)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    sessions = [json.loads(answer)["session"] for status, answer in answers if status == 200]
    if len(set(sessions)) != most or {status for status, _ in answers} != {200, 429}:
        return f"{len(sessions)} sessions of {most}"
    for session in sessions:
        post(address, "/close", json.dumps({"session": session}).encode(), {200})
    open_now = json.loads(ask(address, "/health")[1])["sessions"]
    return None if open_now == 0 else f"{open_now} sessions left"


def guess(address: Address) -> str | None:
    """Sessions of others cannot be guessed from one's own."""
    mine = [opened(address) for _ in range(3)]
    shared = max(sum(a == b for a, b in zip(one, other)) for one, other in itertools.pairwise(mine))
    for session in mine:
        post(address, "/close", json.dumps({"session": session}).encode(), {200})
    return None if min(map(len, mine)) >= 20 and shared < 10 else f"{mine} are alike"


def attack() -> Iterator[Outcome]:
    most = 16
    words = ("env-server", "--task", "frozen-lake", "--port", "0", "--max-sessions", str(most))
    with served(*words) as (address, process):
        for name, path, body, expected in bodies():
            yield attempt(name, partial(post, address, path, body, expected))
        for name, value in LIES.items():
            yield attempt(name, partial(lie, address, value))
        yield from send_headers(address, "/open")
        yield attempt("fuzzed requests", partial(fuzz, address))
        yield attempt("a flood of sessions", partial(flood, address, most))
        yield attempt("guessing sessions", partial(guess, address))
        rebound = partial(ask, address, "/task", host="rebind.evil")
        yield attempt("a foreign Host", lambda: None if rebound()[0] == 400 else "taken")
        yield attempt("health", lambda: None if ask(address, "/health")[0] == 200 else "gone")
        opened(address)
        yield "SIGTERM with a session open", ends_on_sigterm(process)


if __name__ == "__main__":
    sys.exit(report(attack()))
