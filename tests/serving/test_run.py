import asyncio
import signal
import socket
import subprocess
import sys
import threading
import time
from types import SimpleNamespace

import httpx
import pytest

from lookact.errors import ConfigError
from lookact.serving import run
from lookact.serving.middleware import TOKEN_BYTES, count_tokens
from lookact.serving.run import bind

HELLO = {"messages": [{"role": "user", "content": "hello"}]}


def closed_within(connection, seconds):
    """Whether the other side hangs up, after whatever it may say."""
    connection.settimeout(seconds)
    try:
        while connection.recv(4096):
            pass
    except TimeoutError:
        return False
    except ConnectionError:
        pass
    return True


def test_a_port_in_use_is_told_at_once():
    bound = bind("127.0.0.1", 0)
    bound.listen()
    with pytest.raises(ConfigError, match="another program uses it"):
        bind("127.0.0.1", bound.getsockname()[1])
    bound.close()
    with pytest.raises(ConfigError, match="cannot serve on 203"):
        bind("203.0.113.1", 0)


def test_small_answers_are_not_held_back():
    async def delay_is_off():
        heard = asyncio.get_running_loop().create_future()

        async def hear(reader, writer):
            heard.set_result(writer.get_extra_info("socket").getsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY))
            writer.close()

        bound = bind("127.0.0.1", 0)
        async with await asyncio.start_server(hear, sock=bound):
            _, writer = await asyncio.open_connection(*bound.getsockname())
            writer.close()
            return await heard

    assert asyncio.run(delay_is_off())


@pytest.mark.parametrize("sent", [b"", b"POST /generate HTT", b"POST /generate HTTP/1.1\r\nHost: [::1]\r\nX-Slow: "])
def test_a_connection_that_never_finishes_its_header_is_closed(serve_here, wait_for, sent):
    url = serve_here(header_seconds=0.4)
    with socket.create_connection(("127.0.0.1", int(url.rpartition(":")[2]))) as connection:
        connection.sendall(sent)
        assert closed_within(connection, 60)
    # a busy machine may take longer over a request's own header
    wait_for(lambda: answers(url))


def answers(url):
    try:
        return httpx.post(f"{url}/generate", json=HELLO, timeout=60).status_code == 200
    except httpx.TransportError:
        return False


def test_a_header_sent_byte_by_byte_is_cut_off(serve_here):
    url = serve_here(header_seconds=0.4)
    with socket.create_connection(("127.0.0.1", int(url.rpartition(":")[2]))) as connection:
        for _ in range(1200):
            try:
                connection.sendall(b"X")
            except ConnectionError:
                return
            time.sleep(0.05)
    pytest.fail("it was still open after a minute")


def test_a_body_that_drips_is_answered_408(serve_here):
    url = serve_here(body_seconds=0.3)
    with socket.create_connection(("127.0.0.1", int(url.rpartition(":")[2]))) as connection:
        connection.sendall(
            b"POST /generate HTTP/1.1\r\nHost: [::1]\r\nContent-Type: application/json\r\nContent-Length: 99\r\n\r\n{"
        )
        connection.settimeout(60)
        assert connection.recv(4096).startswith(b"HTTP/1.1 408")
        assert closed_within(connection, 60)


@pytest.mark.slow
def test_a_connection_in_use_outlives_the_header_limit(serve_here, wait_for, monkeypatch):
    """By a clock that stands still between the test's own jumps: how busy the machine is does not matter."""
    looks, now = [], [0.0]
    monkeypatch.setattr(run, "time", SimpleNamespace(monotonic=lambda: looks.append(now[0]) or now[0]))
    url = serve_here(header_seconds=60.0)
    with httpx.Client(timeout=60) as client:
        ports = set()
        for _ in range(3):
            response = client.post(f"{url}/generate", json=HELLO)
            assert response.status_code == 200
            ports.add(response.extensions["network_stream"].get_extra_info("client_addr"))
            seen = len(looks)
            wait_for(lambda seen=seen: len(looks) > seen)
            now[0] += 40.0
    assert len(ports) == 1


@pytest.mark.slow
def test_a_signal_lets_accepted_work_finish_and_takes_no_more(serve_apart, free_port, wait_for, tmp_path):
    url, go_on = f"http://127.0.0.1:{free_port}", tmp_path / "go on"
    server = serve_apart(free_port, until=go_on)
    answers = []
    asking = [
        threading.Thread(target=lambda: answers.append(httpx.post(f"{url}/generate", json=HELLO, timeout=60)))
        for _ in range(6)
    ]
    for thread in asking:
        thread.start()
    body = b'{"messages":[{"role":"user","content":"hello"}]}'
    wait_for(lambda: held(url) == 6 * (len(body) + TOKEN_BYTES * count_tokens(body, 100)))
    server.send_signal(signal.SIGTERM)
    wait_for(lambda: refuses(url))
    assert answers == []
    go_on.touch()
    for thread in asking:
        thread.join(60)
    assert [answer.status_code for answer in answers] == [200] * 6
    assert server.wait(60) == 0


def refuses(url):
    """Whether new connections are turned away."""
    try:
        httpx.get(f"{url}/health", timeout=60)
    except httpx.ConnectError:
        return True
    return False


def held(url):
    lines = httpx.get(f"{url}/metrics").text.splitlines()
    return next(float(line.split()[-1]) for line in lines if line.startswith("lookact_held_bytes"))


HANGS = """
import time
from fastapi import FastAPI
from lookact.serving.limits import Limits
from lookact.serving.run import bind, serve

app = FastAPI()

@app.get("/")
def hang():
    time.sleep(600)

bound = bind("127.0.0.1", 0)
print(bound.getsockname()[1], flush=True)
serve(app, bound, Limits(request_seconds=0.1))
"""


@pytest.mark.slow
def test_a_thread_that_hangs_does_not_outlive_sigterm(wait_for):
    process = subprocess.Popen([sys.executable, "-c", HANGS], stdout=subprocess.PIPE, text=True)
    url = f"http://127.0.0.1:{int(process.stdout.readline())}"
    try:
        wait_for(lambda: hangs(url))
        process.terminate()
        assert process.wait(60) == 0
    finally:
        process.kill()
        process.wait()


def hangs(url):
    try:
        httpx.get(url, timeout=0.5)
    except httpx.ReadTimeout:
        return True
    except httpx.ConnectError:
        return False
