"""Servers that break off, are slow, or lie: no label is lost, none counts twice, and nothing spins."""

import base64
import io
import json
import threading
import time
from collections import Counter
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import numpy as np
import PIL.Image
import pytest

from lookact.algorithms.judge_diary import read_diary
from lookact.algorithms.reward_learning import Query
from lookact.errors import JudgeRefused
from lookact.recipes.pref_sac.config import ClientConfig
from lookact.recipes.pref_sac.judge import JudgeService, written_down

GOAL = "to be bright"
LISTING = {"data": [{"id": "bright"}]}


@pytest.fixture
def pairs():
    pictures = np.random.default_rng(0).integers(0, 255, (6, 2, 1, 1, 3), dtype=np.uint8)
    return [tuple(np.broadcast_to(picture, (32, 32, 3)) for picture in pair) for pair in pictures]


def brighter(pairs):
    return [int(two.mean() > one.mean()) for one, two in pairs]


def verdict(body):
    """The number of the brighter image of a request."""
    parts = json.loads(body)["messages"][0]["content"]
    files = [part["image_url"]["url"].partition(",")[2] for part in parts if part["type"] == "image_url"]
    first, second = (np.asarray(PIL.Image.open(io.BytesIO(base64.b64decode(file)))).mean() for file in files)
    return str(int(second > first))


def completion(text):
    return json.dumps({"choices": [{"message": {"content": text}}]}).encode()


@pytest.fixture
def serve():
    """Starts servers; `answer` gets a question and how often it was asked, and gives bytes and perhaps a length."""
    servers = []

    def start(answer):
        asked, lock = Counter(), threading.Lock()

        class Handler(BaseHTTPRequestHandler):
            def do_GET(self):
                self.reply(json.dumps(LISTING).encode())

            def do_POST(self):
                body = self.rfile.read(int(self.headers["Content-Length"]))
                with lock:
                    asked[body] += 1
                    count = asked[body]
                self.reply(*answer(body, count))

            def reply(self, content, length=None):
                self.send_response(200)
                self.send_header("Content-Length", str(len(content) if length is None else length))
                self.end_headers()
                self.wfile.write(content)

            def log_message(self, *given):
                pass

        servers.append(ThreadingHTTPServer(("127.0.0.1", 0), Handler))
        threading.Thread(target=servers[-1].serve_forever, daemon=True).start()
        return ClientConfig(url=f"http://127.0.0.1:{servers[-1].server_address[1]}", timeout_s=30.0), asked

    yield start
    for server in servers:
        server.shutdown()
        server.server_close()


def service_of(client, folder):
    return JudgeService(client, checkpoint=None, folder=folder)


def test_an_answer_that_breaks_off_is_asked_for_again_and_counts_once(tmp_path, pairs, serve):
    def answer(body, count):
        content = completion(verdict(body))
        # the first time half of it comes, and then the connection ends
        return (content[: len(content) // 2], len(content)) if count == 1 else (content, len(content))

    client, asked = serve(answer)
    service = service_of(client, tmp_path)
    assert [told.verdict for told in service.compare(pairs, GOAL)] == brighter(pairs)
    assert set(asked.values()) == {2}
    assert (service.counts["pairs"], service.counts["requests"]) == (len(pairs), len(pairs))


def test_a_slow_server_is_asked_once(tmp_path, pairs, serve):
    def answer(body, count):
        time.sleep(0.1)
        return (completion(verdict(body)),)

    client, asked = serve(answer)
    service = service_of(client, tmp_path)
    assert [told.verdict for told in service.compare(pairs, GOAL)] == brighter(pairs)
    assert set(asked.values()) == {1}


@pytest.mark.parametrize("words", ["both are lovely", "", "7", "maybe"])
def test_words_that_are_no_verdict_are_no_preference_and_counted_apart(tmp_path, pairs, serve, words):
    client, asked = serve(lambda body, count: (completion(words),))
    service = service_of(client, tmp_path)
    assert [told.verdict for told in service.compare(pairs, GOAL)] == [-1] * len(pairs)
    assert service.counts["unparsable"] == len(pairs)
    assert service.counts["no_preference"] == 0
    # a rerun reads what was said
    again = service_of(client, tmp_path)
    again.compare(pairs, GOAL)
    assert set(asked.values()) == {1}


@pytest.mark.parametrize("content", [b"<html>hello</html>", b"{}", b'{"choices": []}', b"[1, 2]", b"\xff\xfe"])
def test_what_is_no_answer_stops_the_run_and_keeps_no_label(tmp_path, pairs, serve, content):
    client, asked = serve(lambda body, count: (content,))
    service = service_of(client, tmp_path)
    with pytest.raises(JudgeRefused, match="does not answer as OpenAI's API does"):
        service.compare(pairs, GOAL)
    assert asked.total() <= len(pairs)
    assert service.counts["pairs"] == 0
    assert not list((tmp_path / "replies").rglob("*.json"))


def test_a_liar_is_believed_and_found_out_in_the_diary(tmp_path, pairs, serve):
    client, _ = serve(lambda body, count: (completion(str(1 - int(verdict(body)))),))
    label, service = written_down(service_of(client, tmp_path), GOAL, ("?",))
    frames = np.stack([np.stack(pair) for pair in pairs])
    truth = np.array([[[one.mean()], [two.mean()]] for one, two in pairs])
    assert label(Query(frames, truth), 0) == [1 - right for right in brighter(pairs)]
    diary = read_diary(tmp_path)
    assert [pair.truth for pair in diary] == brighter(pairs)
    assert all(pair.verdict == 1 - pair.truth for pair in diary)
