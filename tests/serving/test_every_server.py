"""The gates and limits that the VLM, the environment and the policy server share, tried on each of them."""

import dataclasses
import json
import socket
from types import SimpleNamespace

import httpx
import pytest

from lookact.errors import LookActError
from lookact.extras import is_installed
from lookact.serving.middleware import TOKEN_BYTES, count_tokens

POLICY = pytest.param("policy", marks=pytest.mark.skipif(not is_installed("msgpack"), reason="needs lookact[policy]"))
TAKES_JSON = {"judge": "/generate", "environment": "/call"}


def judge(limits, **gates):
    from lookact.judges.server.app import METHODS, create_app
    from lookact.serving.limits import Limits

    limits = dataclasses.replace(Limits(), **limits)
    return create_app(lambda prompts, dropped: iter(()), model="echo", limits=limits, **gates), limits, METHODS


def environment(limits, **gates):
    from lookact.envs.remote.app import LIMITS, METHODS, create_app

    def make_task(seed):
        return SimpleNamespace(image_size=8, outcome={}, best="success_rate", corpus=lambda: ["go"])

    limits = dataclasses.replace(LIMITS, **limits)
    return create_app(make_task, name="stand-in", limits=limits, **gates), limits, METHODS


def policy(limits, **gates):
    from lookact.rollout.policy_server.app import LIMITS, METHODS, create_app
    from lookact.rollout.policy_server.observations import PolicyFacts

    limits = dataclasses.replace(LIMITS, **limits)
    facts = PolicyFacts("vla-ppo", ("head",), 16, 3, 2, True, True)
    return create_app(None, facts, limits=limits, **gates), limits, METHODS


SERVERS = {"judge": judge, "environment": environment, "policy": policy}


@pytest.fixture
def serve(serve_app):
    """A server of a kind with these limits: its port, and the method of each of its paths."""
    from lookact.judges.client import wait_until_ready

    def start(kind, *, token="", **limits):
        app, limits, methods = SERVERS[kind](limits, token=token)
        url = serve_app(app, limits, **({"websockets": True} if kind == "policy" else {}))
        wait_until_ready(url, seconds=60.0)
        return url, methods

    return start


every_server = pytest.mark.parametrize("kind", ["judge", "environment", POLICY])


def talk(url, sent):
    """All that a server says to raw bytes until it closes the connection."""
    host, port = url.removeprefix("http://").split(":")
    answer = b""
    with socket.create_connection((host, int(port)), timeout=60) as connection:
        connection.sendall(sent)
        try:
            while part := connection.recv(4096):
                answer += part
        except ConnectionResetError:
            pass
    return answer


def is_well(url):
    return httpx.get(f"{url}/health", timeout=60).json()["status"] == "ok"


@every_server
@pytest.mark.parametrize("sent", [b"", b"GET /hea", b"GET /health HTTP/1.1\r\nHost: 127.0.0.1\r\nX-Slow: "])
def test_half_a_header_is_not_waited_for(serve, wait_for, kind, sent):
    url, _ = serve(kind, header_seconds=0.4)
    assert talk(url, sent) == b""

    def well():
        # a busy machine may be too slow for so short a limit
        try:
            return is_well(url)
        except httpx.TransportError:
            return False

    wait_for(well)


@every_server
def test_a_header_without_an_end_is_refused(serve, kind):
    url, _ = serve(kind)
    assert talk(url, b"GET /health HTTP/1.1\r\nHost: 127.0.0.1\r\nX: " + b"x" * 200_000).startswith(b"HTTP/1.1 4")
    assert is_well(url)


@every_server
def test_a_body_that_drips_is_answered_408(serve, kind):
    url, _ = serve(kind, body_seconds=0.3)
    sent = b"GET /health HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Length: 99\r\n\r\nx"
    assert talk(url, sent).startswith(b"HTTP/1.1 408")
    assert is_well(url)


@every_server
def test_a_body_too_large_and_one_that_finds_no_room_are_refused(serve, kind):
    url, _ = serve(kind, body_bytes=1000, held_bytes=100)
    for size, status in ((50, 200), (200, 429), (2000, 413), (9000, 413)):
        answer = httpx.request("GET", f"{url}/health", content=b"x" * size)
        assert answer.status_code == status
        assert answer.headers.get("retry-after") == ("1" if status == 429 else None)
    assert is_well(url)


@every_server
def test_connections_beyond_the_limit_are_answered_503(serve, wait_for, kind):
    url, _ = serve(kind, connections=3)
    address = ("127.0.0.1", int(url.rpartition(":")[2]))
    held = [socket.create_connection(address, timeout=60) for _ in range(3)]
    wait_for(lambda: httpx.get(f"{url}/health", timeout=60).status_code == 503)
    for connection in held:
        connection.close()
    wait_for(lambda: httpx.get(f"{url}/health", timeout=60).status_code == 200)


@every_server
def test_a_token_is_demanded_on_every_path_but_health(serve, kind):
    url, methods = serve(kind, token="s3cret")
    for path, method in methods.items():
        for given in (None, "s3cret", "Bearer s3cre", "bearer s3cret", "Bearer s3cret"):
            headers = {"Content-Type": "application/json"} | ({"Authorization": given} if given else {})
            answer = httpx.request(method, f"{url}{path}", headers=headers)
            right = path == "/health" or given == "Bearer s3cret"
            assert (answer.status_code == 401) != right, (path, given)
    # without a token nobody hears more than that it is there
    told = httpx.get(f"{url}/health").json()
    assert told.pop("status") == "ok"
    assert all(type(count) is int for count in told.values())


@every_server
def test_a_foreign_name_is_refused_on_every_path(serve, kind):
    url, methods = serve(kind)
    for path, method in methods.items():
        for name in ("rebind.evil", "127.0.0.1.evil", "[::1].evil", "localhost.evil:80"):
            answer = httpx.request(method, f"{url}{path}", headers={"Host": name})
            assert (answer.status_code, answer.json()["error"]["code"]) == (400, 400), (path, name)
    assert httpx.get(f"{url}/openapi.json", headers={"Host": "localhost:80"}).status_code == 200


@pytest.mark.parametrize("kind", TAKES_JSON)
def test_json_is_counted_as_what_it_takes_once_it_is_parsed(serve, kind):
    body = json.dumps({"x": [{} for _ in range(500)]}).encode()
    room = len(body) + TOKEN_BYTES * count_tokens(body, 10_000)
    for held, tokens, status in ((room - 1, 10_000, 429), (room, 10_000, 422), (room, 100, 413)):
        url, _ = serve(kind, held_bytes=held, json_tokens=tokens)
        for _ in range(2):
            # the second time it would fail if anything of the first were still held
            headers = {"Content-Type": "application/json"}
            assert httpx.post(f"{url}{TAKES_JSON[kind]}", content=body, headers=headers).status_code == status
        assert httpx.post(f"{url}{TAKES_JSON[kind]}", content=body).status_code == 415


def test_bounds_are_checked_whoever_sets_them(serve):
    with pytest.raises(LookActError, match="connections is 0"):
        serve("environment", connections=0)
