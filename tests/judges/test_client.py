import base64
import io
import json
import math
import threading
import time
from email.message import Message
from email.utils import formatdate
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import numpy as np
import pytest
from PIL import Image

from lookact.errors import JudgeError
from lookact.judges.client import (
    ClientSpec,
    JudgeClient,
    encode_part,
    encode_png,
    server_url,
    wait_until_ready,
)
from lookact.serving.client import Answer, retry_after

GOOD = {"choices": [{"message": {"content": "the second"}}]}


class Flaky:
    """A server that gives its answers one after the other, then the last for ever, and keeps what it was sent."""

    def __init__(self, *answers):
        self.answers, self.seen, self.lock = list(answers), [], threading.Lock()
        flaky = self

        class Handler(BaseHTTPRequestHandler):
            def answer(self):
                body = self.rfile.read(int(self.headers.get("Content-Length", 0)))
                with flaky.lock:
                    flaky.seen.append((self.path, dict(self.headers), json.loads(body or b"null")))
                    status, headers, reply = flaky.answers.pop(0) if len(flaky.answers) > 1 else flaky.answers[0]
                if status is None:
                    self.connection.close()
                    return
                data = reply if isinstance(reply, bytes) else json.dumps(reply).encode()
                self.send_response(status)
                for name, value in headers.items():
                    self.send_header(name, value)
                self.send_header("Content-Length", str(len(data)))
                self.end_headers()
                self.wfile.write(data)

            do_GET = do_POST = answer

            def log_message(self, *args):
                pass

        self.server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.url = f"http://127.0.0.1:{self.server.server_port}"
        threading.Thread(target=self.server.serve_forever, args=(0.01,), daemon=True).start()


@pytest.fixture
def flaky():
    made = []

    def make(*answers):
        made.append(Flaky(*answers))
        return made[-1]

    yield make
    for server in made:
        server.server.shutdown()
        server.server.server_close()


def client_of(server, **changes):
    pauses = []
    spec = ClientSpec(**({"url": server.url, "model": "m", "retry_s": 1000.0} | changes))
    return JudgeClient(spec, sleep=pauses.append), pauses


def test_a_request_has_the_form_of_openai(flaky, images):
    server = flaky((200, {}, GOOD))
    client, _ = client_of(server, token="secret")
    assert client.ask(["look", images[0]], max_tokens=7) == "the second"
    path, headers, body = server.seen[0]
    assert path == "/v1/chat/completions"
    assert headers["Authorization"] == "Bearer secret"
    assert (body["model"], body["max_tokens"], body["temperature"]) == ("m", 7, 0.0)
    assert [part["type"] for part in body["messages"][0]["content"]] == ["text", "image_url"]


def test_first_tokens_that_differ_by_blanks_or_case_are_one(flaky):
    listed = [
        {"token": token, "logprob": math.log(share)} for token, share in (("Yes", 0.5), (" yes", 0.2), ("no", 0.1))
    ]
    server = flaky((200, {}, {"choices": [{"logprobs": {"content": [{"top_logprobs": listed}]}}]}))
    client, _ = client_of(server)
    likely = client.first_token(["is it?"])
    assert {token: math.exp(logprob) for token, logprob in likely.items()} == pytest.approx({"yes": 0.7, "no": 0.1})
    body = server.seen[0][2]
    assert (body["max_tokens"], body["logprobs"], body["top_logprobs"]) == (1, True, 20)


def test_failures_that_pass_are_tried_again_and_answers_are_counted_once(flaky):
    server = flaky((503, {}, {}), (None, {}, b""), (500, {}, b"oops"), (200, {}, GOOD))
    client, pauses = client_of(server)
    assert client.ask(["?"], max_tokens=1) == "the second"
    assert (client.requests, client.retries, len(server.seen)) == (1, 3, 4)
    assert 0.125 <= pauses[0] <= 0.25
    assert 0.25 <= pauses[1] <= 0.5
    assert 0.5 <= pauses[2] <= 1.0


def test_pauses_are_drawn_from_the_seed(flaky):
    def pauses_of(seed):
        client, pauses = client_of(flaky((503, {}, {}), (503, {}, {}), (200, {}, GOOD)), seed=seed)
        client.ask(["?"], max_tokens=1)
        return pauses

    assert pauses_of(1) == pauses_of(1) != pauses_of(2)


def test_a_pause_the_server_asks_for_is_kept(flaky):
    client, pauses = client_of(flaky((429, {"Retry-After": "7"}, {}), (200, {}, GOOD)))
    client.ask(["?"], max_tokens=1)
    assert pauses == [7.0]


def test_retry_after_is_read_as_seconds_or_as_a_date():
    def asked(value):
        headers = Message()
        headers["Retry-After"] = value
        return retry_after(Answer("http://x", 429, headers, b""))

    assert asked("3") == 3.0
    assert 100 < asked(formatdate(time.time() + 250, usegmt=True)) <= 250
    assert asked(formatdate(time.time() - 60, usegmt=True)) == asked("soon") == asked("-5") == 0.0
    assert asked("1e9") == 300.0
    assert retry_after(None) == 0.0


def test_a_bad_request_is_not_tried_again_and_the_reason_is_told(flaky):
    server = flaky((422, {}, {"error": {"message": "an image is\ntorn"}}))
    client, pauses = client_of(server)
    with pytest.raises(JudgeError, match="refused the request: 422, an image is torn") as caught:
        client.ask(["?"], max_tokens=1)
    assert "\n" not in str(caught.value)
    assert (len(server.seen), pauses, client.requests) == (1, [], 0)


def test_a_server_that_is_not_there_is_named_with_the_remedy(free_port):
    client = JudgeClient(ClientSpec(f"http://127.0.0.1:{free_port}", model="m", retry_s=0.0))
    with pytest.raises(JudgeError, match=f"127.0.0.1:{free_port}.*lookact serve.*SERVER_PORT"):
        client.ask(["?"], max_tokens=1)


def test_retry_s_bounds_the_waiting(flaky):
    client, pauses = client_of(flaky((503, {}, {})), retry_s=20.0)
    with pytest.raises(JudgeError, match="within 20 s"):
        client.ask(["?"], max_tokens=1)
    assert 10 < sum(pauses) <= 20


@pytest.mark.parametrize("reply", [b"<html>hello</html>", {"choices": []}, [1], {"choices": [{"message": None}]}])
def test_a_server_of_another_kind_is_found_out(flaky, reply):
    client, _ = client_of(flaky((200, {}, reply)))
    with pytest.raises(JudgeError, match="is it a VLM server"):
        client.ask(["?"], max_tokens=1)


def test_an_unnamed_model_is_asked_for_once(flaky):
    server = flaky((200, {}, {"data": [{"id": "qwen"}]}), (200, {}, GOOD))
    client, _ = client_of(server, model="")
    assert client.model == "qwen"
    client.ask(["?"], max_tokens=1)
    assert [path for path, _, _ in server.seen] == ["/v1/models", "/v1/chat/completions"]
    assert server.seen[1][2]["model"] == "qwen"


def test_map_keeps_the_order_and_runs_side_by_side(flaky):
    client, _ = client_of(flaky((200, {}, GOOD)), concurrency=4)
    together = threading.Barrier(4, timeout=30)

    def work(item):
        together.wait()
        return -item

    assert client.map(work, list(range(8))) == [-item for item in range(8)]


def test_map_stops_at_a_failure(flaky):
    client, _ = client_of(flaky((200, {}, GOOD)), concurrency=2)
    done = []

    def work(item):
        if item == 0:
            raise JudgeError("gone")
        time.sleep(0.01)
        done.append(item)

    with pytest.raises(JudgeError):
        client.map(work, list(range(1000)))
    assert len(done) < 900


def test_the_address_comes_from_the_environment(monkeypatch):
    monkeypatch.delenv("SERVER_HOST", raising=False)
    monkeypatch.delenv("SERVER_PORT", raising=False)
    assert server_url() == "http://127.0.0.1:8000"
    monkeypatch.setenv("SERVER_HOST", "::1")
    monkeypatch.setenv("SERVER_PORT", "8001")
    assert server_url() == "http://[::1]:8001"


def test_waiting_for_a_server_ends(free_port):
    with pytest.raises(JudgeError, match="lookact serve"):
        wait_until_ready(f"http://127.0.0.1:{free_port}", seconds=0.0)


def test_an_image_survives_the_way_to_the_server_bit_for_bit(images):
    decoded = Image.open(io.BytesIO(base64.b64decode(encode_png(images[0]))))
    assert decoded.format == "PNG"
    np.testing.assert_array_equal(np.array(decoded), images[0])


def test_parts_have_the_form_of_openai(images):
    assert encode_part("which?") == {"type": "text", "text": "which?"}
    part = encode_part(images[0])
    assert part == {"type": "image_url", "image_url": {"url": "data:image/png;base64," + encode_png(images[0])}}
