"""Sixty-four clients at once, half of them up to no good, against a real model behind the real command."""

import json
import os
import re
import signal
import socket
import struct
import subprocess
import sys
import threading
import time
import zlib
from base64 import b64encode

import httpx
import numpy as np
import psutil
import pytest

from lookact.judges.client import ClientSpec, JudgeClient, encode_png, wait_until_ready
from lookact.judges.vlm_judge import VLMJudge
from lookact.models.vlm.tiny import make_tiny

SECONDS = 120
CORPUS = ["The goal is to open the drawer. Image 0: Image 1: which is better? 0 1 -1"] * 50
HEAD = "POST /generate HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Type: application/json\r\nContent-Length: {}\r\n\r\n"


@pytest.fixture(scope="module")
def server(tmp_path_factory):
    """`lookact serve` over a tiny Qwen3-VL: its process and its address."""
    folder = make_tiny(tmp_path_factory.mktemp("tiny"), corpus=CORPUS)
    command = [sys.executable, "-m", "lookact", "serve", "--model", str(folder), "--name", "tiny", "--port", "0"]
    environment = os.environ | {"OMP_NUM_THREADS": "1"}
    process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True, env=environment)
    url = re.search(r"http://\S+", process.stdout.readline())[0]
    wait_until_ready(url, seconds=SECONDS)
    yield process, url
    process.kill()
    process.wait(SECONDS)


def valid_requests():
    """Paths and bodies of questions that all differ, some with images, in both forms."""
    rng = np.random.default_rng(0)
    for index in range(32):
        shapes = [(64, 64, 3), (96, 64, 3), (50, 70, 3)][: index % 4]
        pictures = [encode_png(rng.integers(0, 255, shape, dtype=np.uint8)) for shape in shapes]
        words = {"type": "text", "text": f"Question {index}: which is better?" + " why" * index}
        body = {"max_tokens": 4 + index % 9, "temperature": 0}
        if index % 2:
            parts = [{"type": "image", "image": picture} for picture in pictures]
            yield "/generate", body | {"messages": [{"role": "user", "content": [*parts, words]}]}
        else:
            parts = [{"type": "image_url", "image_url": {"url": f"data:image/png;base64,{p}"}} for p in pictures]
            yield "/v1/chat/completions", body | {"messages": [{"role": "user", "content": [*parts, words]}]}


def text_of(response):
    assert response.status_code == 200, response.text
    answer = response.json()
    return answer["text"] if "text" in answer else answer["choices"][0]["message"]["content"]


def bomb():
    """A PNG of a few bytes that claims 50,000 x 50,000 pixels."""

    def chunk(kind, data):
        return struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data))

    header = struct.pack(">IIBBBBB", 50_000, 50_000, 8, 2, 0, 0, 0)
    return b"\x89PNG\r\n\x1a\n" + chunk(b"IHDR", header) + chunk(b"IDAT", zlib.compress(b"")) + chunk(b"IEND", b"")


def with_image(encoded):
    return json.dumps({"messages": [{"role": "user", "content": [{"type": "image", "image": encoded}]}]}).encode()


BAD = [
    (b'{"messages": [{"role"', 400),
    (b'{"messages": "hello", "max_tokens": "many"}', 422),
    (with_image("this is not base64"), 422),
    (with_image(b64encode(bomb()).decode()), 413),
]


def post_bad(url, body, status):
    response = httpx.post(
        f"{url}/generate", content=body, headers={"Content-Type": "application/json"}, timeout=SECONDS
    )
    assert response.status_code == status
    assert response.json()["error"]["code"] == status


def hang(url, text, done):
    """Sends what is given, keeps the connection until all others are done, then leaves."""
    with socket.create_connection(("127.0.0.1", int(url.rpartition(":")[2]))) as connection:
        connection.sendall(text)
        done.wait(SECONDS)


def leave(url):
    """Asks for a long reply and does not wait for it."""
    body = json.dumps({"messages": [{"role": "user", "content": "tell me more"}], "max_tokens": 1000}).encode()
    with socket.create_connection(("127.0.0.1", int(url.rpartition(":")[2]))) as connection:
        connection.sendall(HEAD.format(len(body)).encode() + body)
        time.sleep(0.05)


def storm(url, expected):
    """One round of 64 clients; raises what any of them raised."""
    failures, done, start = [], threading.Event(), threading.Barrier(64, timeout=SECONDS)

    def ask(path, body, text):
        assert text_of(httpx.post(url + path, json=body, timeout=SECONDS)) == text

    jobs = [(ask, path, body, text) for (path, body), text in zip(valid_requests(), expected)]
    jobs += [(post_bad, url, body, status) for body, status in BAD * 4]
    jobs += [(post_bad, url, b" " * (65 << 20), 413)] * 2
    jobs += [
        (hang, url, text.encode(), done)
        for text in ("", "POST /gen", HEAD.format(50) + "{", "GET / HTTP/1.1\r\nX-A") * 2
    ]
    jobs += [(leave, url)] * 6

    def run(function, *arguments):
        try:
            start.wait()
            function(*arguments)
        except BaseException as failure:
            failures.append(failure)

    threads = [threading.Thread(target=run, args=job) for job in jobs]
    assert len(threads) == 64
    for thread in threads:
        thread.start()
    for thread, job in zip(threads, jobs):
        if job[0] is not hang:
            thread.join(SECONDS)
    done.set()
    for thread in threads:
        thread.join(SECONDS)
    if failures:
        raise failures[0]


def metric(url, name):
    lines = httpx.get(f"{url}/metrics").text.splitlines()
    return sum(float(line.split()[-1]) for line in lines if line.startswith(f"lookact_{name}"))


@pytest.mark.slow
def test_sixty_four_clients_good_and_bad(server, wait_for):
    process, url = server
    alone = [text_of(httpx.post(url + path, json=body, timeout=SECONDS)) for path, body in valid_requests()]
    assert len(set(alone)) > 8
    batches = metric(url, "batches_total")
    storm(url, alone)
    assert metric(url, "batches_total") - batches < 32
    before = psutil.Process(process.pid).memory_info().rss
    for _ in range(3):
        storm(url, alone)
    wait_for(lambda: metric(url, "held_bytes") == 0 and metric(url, "queue_waiting") == 0)
    grown = psutil.Process(process.pid).memory_info().rss - before
    # three more rounds bring six bodies of 65 MB each: kept, they would show
    assert grown < 40 << 20
    assert metric(url, "dropped_total") > 0
    assert process.poll() is None
    assert metric(url, 'requests_total{path="/generate",status="500"}') == 0


@pytest.mark.slow
def test_a_judge_asks_a_real_model_through_the_server(server, images):
    judge = VLMJudge(JudgeClient(ClientSpec(server[1])), variant="single")
    first = judge.compare([(images[0], images[1])], "a bright picture")
    assert judge.client.model == "tiny"
    assert judge.counts["requests"] == 1
    again = VLMJudge(JudgeClient(ClientSpec(server[1])), variant="single").compare(
        [(images[0], images[1])], "a bright picture"
    )
    assert again[0].raw_text == first[0].raw_text


@pytest.mark.slow
def test_the_command_ends_well_on_a_signal(server):
    process, url = server
    process.send_signal(signal.SIGTERM)
    assert process.wait(SECONDS) == 0
    with pytest.raises(httpx.ConnectError):
        httpx.get(f"{url}/health")
