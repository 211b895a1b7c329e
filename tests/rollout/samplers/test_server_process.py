"""A real child process with a real HTTP server in it: Python's own."""

import asyncio
import os
import signal
import subprocess
import sys
import textwrap
import time

import httpx
import pytest

from lookact.errors import EngineError
from lookact.rollout.samplers.server_process import KEY, KeyMiddleware, ServerProcess, free_port


def file_server(port):
    return [sys.executable, "-m", "http.server", str(port), "--bind", "127.0.0.1"]


@pytest.fixture
def server(tmp_path):
    process = ServerProcess(file_server, log=tmp_path / "logs" / "server.log", timeout_s=300, health="/")
    yield process
    process.stop()


def gone(pid):
    """Whether a process has ended, waiting for it a little."""
    for _ in range(600):
        try:
            os.kill(pid, 0)
        except ProcessLookupError:
            return True
        time.sleep(0.05)
    return False


def test_a_started_server_answers_and_a_stopped_one_is_gone(server):
    server.start()
    pid = server.pid
    assert server.healthy()
    assert httpx.get(server.url, trust_env=False).status_code == 200
    server.stop()
    assert not server.healthy()
    assert gone(pid)
    server.stop()


def test_a_killed_server_is_noticed_and_started_again(server):
    server.start()
    first = server.pid
    os.kill(first, signal.SIGKILL)
    server._process.wait()
    assert not server.alive()
    assert not server.healthy()
    server.restart()
    assert server.healthy()
    assert (server.starts, server.pid != first) == (2, True)


def test_a_server_that_ends_before_it_is_up_says_why(tmp_path):
    command = [sys.executable, "-c", "raise ValueError('no such model')"]
    server = ServerProcess(lambda port: command, log=tmp_path / "server.log", timeout_s=300)
    with pytest.raises(
        EngineError, match=r"exit code 1 before it was up: ValueError: no such model \(see .*server.log"
    ):
        server.start()


def test_a_server_that_never_comes_up_is_given_up_and_ended(tmp_path):
    command = [sys.executable, "-c", "import time; time.sleep(600)"]
    server = ServerProcess(lambda port: command, log=tmp_path / "server.log", timeout_s=0.5)
    with pytest.raises(EngineError, match=r"not up within 0.5 s: see .*server.log"):
        server.start()
    assert server.pid is None


def test_a_server_ends_with_the_process_that_started_it(tmp_path):
    code = textwrap.dedent(f"""
        import os, signal, sys
        from pathlib import Path
        from lookact.rollout.samplers.server_process import ServerProcess
        command = [{sys.executable!r}, "-m", "http.server", "--bind", "127.0.0.1"]
        log = Path({str(tmp_path)!r}) / "log"
        server = ServerProcess(lambda port: [*command, str(port)], log=log, timeout_s=300, health="/")
        server.start()
        print(server.pid, flush=True)
        os.kill(os.getpid(), signal.SIGKILL)
    """)
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert done.returncode == -signal.SIGKILL
    assert gone(int(done.stdout))


def test_free_ports_differ_from_a_port_in_use(server):
    server.start()
    assert free_port() != server.port


def test_only_who_knows_the_key_gets_past_health(monkeypatch):
    monkeypatch.setenv(KEY, "s3cret")
    events = []

    async def app(scope, receive, send):
        events.append(scope["path"])

    async def send(event):
        events.append(event.get("status"))

    def ask(path, *headers, kind="http"):
        events.clear()
        scope = {"type": kind, "path": path, "headers": headers}
        asyncio.run(KeyMiddleware(app)(scope, None, send))
        return events[0] if events else None

    right = (b"authorization", b"Bearer s3cret")
    assert ask("/health") == "/health"
    for path in ("/collective_rpc", "/inference/v1/generate", "/v1/models", "/health/../sleep", "/"):
        assert ask(path) == 401
        assert ask(path, (b"authorization", b"Bearer wrong")) == 401
        assert ask(path, right) == path
    assert ask("/ws", kind="websocket") is None
