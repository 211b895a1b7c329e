"""Servers to ask in threads of this process, in a process of its own, free ports, and waiting for what happens."""

import subprocess
import sys
import time

import pytest

# the servers' own packages are imported inside: tests without them use this file too
SECONDS = 60.0


def echo(prompts, dropped):
    """Says back the texts and image sizes it was given."""
    from lookact.judges.server.batching import Reply

    for index, prompt in enumerate(prompts):
        parts = [part for message in prompt.messages for part in message.parts]
        told = [part if isinstance(part, str) else str(part.shape) for part in parts]
        yield index, Reply(" ".join(told), prompt_tokens=len(told), completion_tokens=1)


@pytest.fixture
def serve_here(serve_app):
    """Starts servers in threads of this process; gives each one's address."""
    from lookact.judges.client import wait_until_ready
    from lookact.judges.server.app import create_app
    from lookact.serving.limits import Limits

    def start(generate=echo, *, token="", **limits):
        limits = Limits(**limits)
        url = serve_app(create_app(generate, model="echo", limits=limits, token=token), limits)
        wait_until_ready(url, seconds=SECONDS)
        return url

    return start


@pytest.fixture
def free_port():
    """Nobody listens there, and nobody else is given it: who asks for it by number may still bind it."""
    from lookact.serving.run import bind

    with bind("127.0.0.1", 0) as held:
        yield held.getsockname()[1]


@pytest.fixture
def wait_for():
    """Waits until a condition holds, and fails where it does not in time."""

    def wait(holds, seconds=SECONDS):
        deadline = time.monotonic() + seconds
        while not holds():
            assert time.monotonic() < deadline, "it did not come about"
            time.sleep(0.01)

    return wait


STAND_IN = """
import os, sys, time
from pathlib import Path
from lookact.judges.server.app import create_app
from lookact.serving.limits import Limits
from lookact.judges.server.batching import Reply
from lookact.serving.run import bind, serve

until, dies_after, answered = sys.argv[2], int(sys.argv[3]), 0

def generate(prompts, dropped):
    global answered
    while until and not Path(until).exists():
        time.sleep(0.01)
    for index, prompt in enumerate(prompts):
        if answered == dies_after:
            os.kill(os.getpid(), 9)
        answered += 1
        parts = [part for message in prompt.messages for part in message.parts]
        light = [part.mean() for part in parts if not isinstance(part, str)]
        if len(light) == 2:
            text = f"Image {int(light[1] > light[0])} is brighter."
        else:
            text = "1" if "Image 1 is brighter" in parts[0] else "0"
        yield index, Reply(text, 1, 1)

serve(create_app(generate, model="stand-in"), bind("127.0.0.1", int(sys.argv[1])), Limits())
"""


@pytest.fixture
def serve_apart():
    """Starts the stand-in in a process of its own, on a given port.

    It answers nothing until a file is there, or dies by SIGKILL after so many answers.
    """
    from lookact.judges.client import wait_until_ready

    started = []

    def start(port, *, until="", dies_after=-1):
        process = subprocess.Popen([sys.executable, "-c", STAND_IN, str(port), str(until), str(dies_after)])
        started.append(process)
        wait_until_ready(f"http://127.0.0.1:{port}", seconds=SECONDS)
        return process

    yield start
    for process in started:
        process.kill()
        process.wait(SECONDS)
