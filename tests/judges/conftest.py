"""Servers to ask: a real one over a stand-in model that sees brightness, in a thread or a process of its own."""

import subprocess
import sys
import time

import numpy as np
import pytest

from lookact.judges.client import wait_until_ready
from lookact.judges.server.app import create_app
from lookact.judges.server.limits import Limits
from lookact.judges.server.records import Reply
from lookact.judges.server.run import bind

SECONDS = 60.0

STAND_IN = """
import sys, time
from lookact.judges.server.app import create_app
from lookact.judges.server.limits import Limits
from lookact.judges.server.records import Reply
from lookact.judges.server.run import bind, serve

def generate(prompts, dropped):
    time.sleep(float(sys.argv[2]))
    for index, prompt in enumerate(prompts):
        parts = [part for message in prompt.messages for part in message.parts]
        light = [part.mean() for part in parts if not isinstance(part, str)]
        if len(light) == 2:
            text = f"Image {int(light[1] > light[0])} is brighter."
        else:
            text = "1" if "Image 1 is brighter" in parts[0] else "0"
        yield index, Reply(text, 1, 1)

serve(create_app(generate, model="stand-in"), bind("127.0.0.1", int(sys.argv[1])), Limits())
"""


def echo(prompts, dropped):
    """Says back the texts and image sizes it was given."""
    for index, prompt in enumerate(prompts):
        parts = [part for message in prompt.messages for part in message.parts]
        told = [part if isinstance(part, str) else str(part.shape) for part in parts]
        yield index, Reply(" ".join(told), prompt_tokens=len(told), completion_tokens=1)


@pytest.fixture
def serve_here(serve_app):
    """Starts servers in threads of this process; gives each one's address."""

    def start(generate=echo, *, token="", **limits):
        limits = Limits(**limits)
        url = serve_app(create_app(generate, model="echo", limits=limits, token=token), limits)
        wait_until_ready(url, seconds=SECONDS)
        return url

    return start


@pytest.fixture
def serve_apart():
    """Starts the stand-in in a process of its own, on a given port, so slow a batch."""
    started = []

    def start(port, pause=0.0):
        process = subprocess.Popen([sys.executable, "-c", STAND_IN, str(port), str(pause)])
        started.append(process)
        wait_until_ready(f"http://127.0.0.1:{port}", seconds=SECONDS)
        return process

    yield start
    for process in started:
        process.kill()
        process.wait(SECONDS)


@pytest.fixture
def free_port():
    bound = bind("127.0.0.1", 0)
    port = bound.getsockname()[1]
    bound.close()
    return port


@pytest.fixture
def wait_for():
    """Waits until a condition holds, and fails where it does not in time."""

    def wait(holds, seconds=SECONDS):
        deadline = time.monotonic() + seconds
        while not holds():
            assert time.monotonic() < deadline, "it did not come about"
            time.sleep(0.01)

    return wait


@pytest.fixture
def images():
    """Pictures (n, 32, 32, 3) told apart by their noise."""
    return np.random.default_rng(0).integers(0, 255, (8, 32, 32, 3), dtype=np.uint8)
