import socket
import threading

import httpx
import numpy as np
import pytest

from lookact.judges.client import encode_png
from lookact.judges.server.batching import Reply, TokenLogprob
from lookact.serving.middleware import TOKEN_BYTES, count_tokens

POST = b"POST /generate HTTP/1.1\r\nHost: 127.0.0.1\r\n"
JSON_HEADER = b"Content-Type: application/json\r\n"
HELLO = {"messages": [{"role": "user", "content": "hello"}]}


def error_of(response):
    assert "\n" not in response.text
    return response.json()["error"]["message"]


def metric(url, name):
    lines = httpx.get(f"{url}/metrics").text.splitlines()
    return sum(float(line.split()[-1]) for line in lines if line.startswith(f"lookact_{name}"))


class Gate:
    """A model that waits until it is let go."""

    def __init__(self):
        self.entered, self.open = threading.Event(), threading.Event()

    def __call__(self, prompts, dropped):
        self.entered.set()
        assert self.open.wait(60)
        for index, _ in enumerate(prompts):
            if not dropped(index):
                yield index, Reply("done")


def test_both_forms_answer_with_their_shapes(serve_here, images, wait_for):
    url = serve_here()
    data_url = "data:image/png;base64," + encode_png(images[0])
    native = [{"type": "text", "text": "look"}, {"type": "image", "image": data_url}]
    plain = httpx.post(f"{url}/generate", json={"messages": [{"role": "user", "content": native}]}).json()
    assert plain["text"] == "look (32, 32, 3)"
    assert plain["usage"] == {"prompt_tokens": 2, "completion_tokens": 1, "total_tokens": 3}
    linked = [{"type": "text", "text": "look"}, {"type": "image_url", "image_url": {"url": data_url, "detail": "high"}}]
    body = {"model": "echo", "messages": [{"role": "user", "content": linked}], "temperature": 0, "user": "x"}
    chat = httpx.post(f"{url}/v1/chat/completions", json=body).json()
    assert (chat["object"], chat["model"]) == ("chat.completion", "echo")
    assert chat["choices"] == [
        {
            "index": 0,
            "finish_reason": "stop",
            "message": {"role": "assistant", "content": "look (32, 32, 3)"},
            "logprobs": None,
        }
    ]
    assert chat["usage"]["total_tokens"] == 3
    wait_for(lambda: metric(url, "held_bytes") == 0)


def test_health_models_and_metrics_answer(serve_here):
    url = serve_here()
    assert httpx.get(f"{url}/health").json() == {"status": "ok", "waiting": 0}
    assert [card["id"] for card in httpx.get(f"{url}/v1/models").json()["data"]] == ["echo"]
    page = httpx.get(f"{url}/metrics")
    assert page.headers["content-type"].startswith("text/plain; version=0.0.4")
    assert 'lookact_requests_total{path="/health",status="200"}' in page.text


@pytest.mark.parametrize(
    ("body", "status", "told"),
    [
        (b'{"messages": [', 400, "not JSON"),
        (b"[" * 100_000, 413, "tokens"),
        (b"[" * 4000, 400, ""),
        (b"\xff\xfe", 400, ""),
        (b"[]", 422, "body"),
        (b"{}", 422, "messages"),
        (b'{"messages": []}', 422, "messages"),
        (b'{"messages": [{"role": "robot", "content": "x"}]}', 422, "messages.0.role"),
        (b'{"messages": [{"role": "user", "content": 7}]}', 422, "messages.0.content"),
        (b'{"messages": [{"role": "user", "content": [{"type": "video"}]}]}', 422, "messages.0.content.0"),
        (b'{"messages": [{"role": "user", "content": [{"type": "image", "image": "@@"}]}]}', 422, "base64"),
        (b'{"messages": [{"role": "user", "content": "x"}], "max_tokens": "9"}', 422, "max_tokens"),
        (b'{"messages": [{"role": "user", "content": "x"}], "max_tokens": true}', 422, "max_tokens"),
        (b'{"messages": [{"role": "user", "content": "x"}], "max_tokens": 9999}', 422, "at most 1024"),
        (b'{"messages": [{"role": "user", "content": "x"}], "temperature": NaN}', 422, "temperature"),
        (b'{"messages": [{"role": "user", "content": "x"}], "temperature": -1}', 422, "temperature"),
        (b'{"messages": [{"role": "user", "content": "\\ud800"}]}', 422, "Unicode"),
    ],
)
def test_a_bad_body_is_told_in_one_line(serve_here, body, status, told):
    url = serve_here()
    for path in ("/generate", "/v1/chat/completions"):
        response = httpx.post(url + path, content=body, headers={"Content-Type": "application/json"})
        assert response.status_code == status
        assert told in error_of(response)


@pytest.mark.parametrize(
    ("extra", "told"),
    [
        ({"n": 17}, "n: "),
        ({"n": True}, "n: "),
        ({"stop": [""]}, "stop"),
        ({"stop": ["x"] * 17}, "stop"),
        ({"tools": [{"type": "function"}]}, "tools"),
        ({"tool_choice": "required"}, "tool_choice"),
        ({"logprobs": 0}, "logprobs"),
        ({"top_logprobs": 2}, "set logprobs to true"),
        ({"logprobs": True, "top_logprobs": 21}, "top_logprobs"),
        ({"stream": 1}, "stream"),
        ({"stream": True, "n": 2}, "comes alone"),
        ({"stream": True, "logprobs": True}, "without logprobs"),
        ({"stream_options": {"include_usage": True}}, "set stream to true"),
        ({"response_format": {"type": "json_object"}}, "can't hold replies to a form: ask for JSON in the prompt"),
        ({"response_format": {"type": "json_schema", "json_schema": {}}}, "response_format"),
        ({"frequency_penalty": 0.5}, "frequency_penalty"),
        ({"presence_penalty": -1}, "presence_penalty"),
        ({"logit_bias": {"7": 1}}, "logit_bias"),
        ({"store": True}, "store"),
        ({"min_p": 0.1}, "min_p: this server has no such field: leave it out"),
        ({"messages": [{"role": "user", "content": "x", "name": "Ann"}]}, "messages.0.name: this server has no such"),
    ],
)
def test_what_cannot_be_done_is_refused_and_not_ignored(serve_here, extra, told):
    response = httpx.post(f"{serve_here()}/v1/chat/completions", json=HELLO | extra)
    assert response.status_code == 422
    assert told in error_of(response)


def test_what_changes_nothing_is_taken(serve_here):
    harmless = {"stream": False, "n": 1, "stop": None, "frequency_penalty": 0, "presence_penalty": 0.0, "tools": []}
    harmless |= {"logit_bias": {}, "response_format": {"type": "text"}, "tool_choice": "none", "store": False}
    nothing = ("refusal", "annotations", "audio", "function_call", "tool_calls", "reasoning_content")
    returned = {"role": "assistant", "content": "hi"} | dict.fromkeys(nothing)
    told = {"messages": [*HELLO["messages"], returned, *HELLO["messages"]]}
    assert httpx.post(f"{serve_here()}/v1/chat/completions", json=told | harmless).status_code == 200


def test_the_models_name_is_checked_and_told(serve_here):
    url = serve_here()
    assert httpx.get(f"{url}/v1/models/echo").json()["id"] == "echo"
    unknown = httpx.get(f"{url}/v1/models/Qwen/Qwen3-VL-8B-Instruct")
    assert (unknown.status_code, error_of(unknown)) == (
        404,
        "no model 'Qwen/Qwen3-VL-8B-Instruct' here: ask for 'echo'",
    )
    for name, status in (("echo", 200), (None, 200), ("gpt-4o", 404), ("", 404)):
        assert httpx.post(f"{url}/v1/chat/completions", json=HELLO | {"model": name}).status_code == status


def test_a_developers_message_is_a_system_message(serve_here):
    def generate(prompts, dropped):
        for index, prompt in enumerate(prompts):
            yield index, Reply(" ".join(message.role for message in prompt.messages), 1, 1)

    body = {"messages": [{"role": "developer", "content": "be brief"}, *HELLO["messages"]]}
    said = httpx.post(f"{serve_here(generate)}/v1/chat/completions", json=body).json()
    assert said["choices"][0]["message"]["content"] == "system user"


def test_n_replies_have_seeds_of_their_own_and_share_a_prompt(serve_here):
    def generate(prompts, dropped):
        for index, prompt in enumerate(prompts):
            yield index, Reply(str(prompt.seed), prompt_tokens=5, completion_tokens=2, finish="length")

    url = serve_here(generate)
    body = HELLO | {"n": 3, "seed": 7, "temperature": 1.0}
    first, second = (httpx.post(f"{url}/v1/chat/completions", json=body).json() for _ in range(2))
    said = [choice["message"]["content"] for choice in first["choices"]]
    assert [choice["index"] for choice in first["choices"]] == [0, 1, 2]
    assert said[0] == "7"
    assert len(set(said)) == 3
    assert first["usage"] == {"prompt_tokens": 5, "completion_tokens": 6, "total_tokens": 11}
    assert second["choices"] == first["choices"]


def test_n_replies_that_find_no_room_leave_the_line(serve_here):
    url = serve_here(queue=2)
    assert httpx.post(f"{url}/v1/chat/completions", json=HELLO | {"n": 3}).status_code == 429
    assert metric(url, "queue_waiting") == 0
    assert httpx.post(f"{url}/v1/chat/completions", json=HELLO | {"n": 2}).status_code == 200


def test_log_probabilities_come_in_openais_form(serve_here):
    def generate(prompts, dropped):
        for index, prompt in enumerate(prompts):
            told = TokenLogprob("1", -0.1, (("1", -0.1), ("é", -2.5))[: prompt.top_logprobs])
            yield index, Reply("1", 1, 1, logprobs=(told,) if prompt.top_logprobs is not None else ())

    url = serve_here(generate)

    def told(**extra):
        return httpx.post(f"{url}/v1/chat/completions", json=HELLO | extra).json()["choices"][0]["logprobs"]

    one = {"token": "1", "logprob": -0.1, "bytes": [49]}
    assert told() is None
    assert told(logprobs=True) == {"content": [{**one, "top_logprobs": []}]}
    other = {"token": "é", "logprob": -2.5, "bytes": [195, 169]}
    assert told(logprobs=True, top_logprobs=2) == {"content": [{**one, "top_logprobs": [one, other]}]}


def test_wrong_paths_methods_and_types_have_their_codes(serve_here):
    url = serve_here()
    assert error_of(httpx.get(f"{url}/nowhere")) == "Not Found"
    assert httpx.get(f"{url}/generate").status_code == 405
    assert httpx.get(f"{url}/generate").headers["allow"] == "POST"
    assert httpx.post(f"{url}/health").status_code == 405
    assert httpx.post(f"{url}/generate", content=b"{}", headers={"Content-Type": "text/plain"}).status_code == 415


def test_a_token_is_demanded_everywhere_but_for_health(serve_here):
    url = serve_here(token="s3cret")
    assert httpx.get(f"{url}/health").status_code == 200
    for headers in ({}, {"Authorization": "Bearer wrong"}, {"Authorization": "s3cret"}):
        for response in (
            httpx.get(f"{url}/metrics", headers=headers),
            httpx.post(f"{url}/generate", json=HELLO, headers=headers),
        ):
            assert response.status_code == 401
            assert response.headers["www-authenticate"] == "Bearer"
            assert "token" in error_of(response)
    right = {"Authorization": "Bearer s3cret"}
    assert httpx.post(f"{url}/generate", json=HELLO, headers=right).status_code == 200


def test_a_body_too_large_is_refused_whether_announced_or_not(serve_here):
    url = serve_here(body_bytes=1000)
    large = b'{"messages": "' + b"x" * 2000 + b'"}'
    as_json = {"Content-Type": "application/json"}
    assert httpx.post(f"{url}/generate", content=large, headers=as_json).status_code == 413
    assert httpx.post(f"{url}/generate", content=iter([large]), headers=as_json).status_code == 413
    with socket.create_connection(("127.0.0.1", int(url.rpartition(":")[2]))) as vast:
        vast.sendall(POST + JSON_HEADER + b"Content-Length: 10000000\r\n\r\n")
        vast.settimeout(30)
        assert vast.recv(4096).startswith(b"HTTP/1.1 413")
    assert httpx.post(f"{url}/generate", json=HELLO).status_code == 200
    assert metric(url, "held_bytes") == 0


@pytest.mark.slow
def test_a_benchmarks_32_frames_fit_whatever_they_show(serve_here):
    noise = np.random.default_rng(0).integers(0, 255, (480, 640, 3), dtype=np.uint8)
    part = {"type": "image", "image": encode_png(noise)}
    body = {"messages": [{"role": "user", "content": [part] * 32}]}
    assert httpx.post(f"{serve_here()}/generate", json=body, timeout=60).status_code == 200


def test_decoded_images_count_against_the_budget(serve_here, images):
    url = serve_here(held_bytes=30_000)
    parts = [{"type": "image", "image": encode_png(image)} for image in images[:7]]
    response = httpx.post(f"{url}/generate", json={"messages": [{"role": "user", "content": parts}]})
    assert (response.status_code, response.headers["retry-after"]) == (429, "1")
    assert metric(url, "held_bytes") == 0


def test_a_full_queue_answers_429_and_recovers(serve_here, wait_for):
    gate = Gate()
    url = serve_here(gate, queue=2, batch=1)
    codes = []
    threads = [
        threading.Thread(target=lambda: codes.append(httpx.post(f"{url}/generate", json=HELLO, timeout=60).status_code))
        for _ in range(3)
    ]
    threads[0].start()
    assert gate.entered.wait(60)
    for thread in threads[1:]:
        thread.start()
    wait_for(lambda: metric(url, "queue_waiting") == 2)
    refused = httpx.post(f"{url}/generate", json=HELLO)
    assert refused.status_code == 429
    assert int(refused.headers["retry-after"]) >= 1
    gate.open.set()
    for thread in threads:
        thread.join(60)
    assert codes == [200, 200, 200]


def test_a_request_that_takes_too_long_is_answered_504_and_leaves_the_queue(serve_here, wait_for):
    gate = Gate()
    url = serve_here(gate, request_seconds=0.2, batch=1)
    assert [httpx.post(f"{url}/generate", json=HELLO).status_code for _ in range(2)] == [504, 504]
    assert metric(url, "queue_waiting") == 0
    assert metric(url, "dropped_total") == 2
    gate.open.set()
    wait_for(lambda: httpx.post(f"{url}/generate", json=HELLO).status_code == 200)


def test_a_client_that_leaves_frees_its_place(serve_here, wait_for):
    gate = Gate()
    url = serve_here(gate, batch=1, queue=1)
    port = int(url.rpartition(":")[2])
    body = b'{"messages": [{"role": "user", "content": "hello"}]}'
    head = POST + JSON_HEADER + b"Content-Length: %d\r\n\r\n" % len(body)
    running, waiting = (socket.create_connection(("127.0.0.1", port)) for _ in range(2))
    running.sendall(head + body)
    assert gate.entered.wait(60)
    waiting.sendall(head + body)
    wait_for(lambda: metric(url, "queue_waiting") == 1)
    waiting.close()
    wait_for(lambda: metric(url, "queue_waiting") == 0)
    running.close()
    wait_for(lambda: metric(url, "dropped_total") == 2)
    gate.open.set()
    assert httpx.post(f"{url}/generate", json=HELLO).status_code == 200


def test_a_model_that_fails_answers_500_and_the_server_lives_on(serve_here):
    def generate(prompts, dropped):
        for index, prompt in enumerate(prompts):
            if prompt.messages[0].parts == ("hello",):
                raise RuntimeError("broken\nweights")
            yield index, Reply("fine")

    url = serve_here(generate)
    response = httpx.post(f"{url}/generate", json=HELLO)
    assert response.status_code == 500
    assert error_of(response) == "the model failed: RuntimeError: broken weights"
    other = {"messages": [{"role": "user", "content": "bye"}]}
    assert httpx.post(f"{url}/generate", json=other).json()["text"] == "fine"


def test_a_prompt_the_model_cannot_take_is_the_clients_fault(serve_here):
    url = serve_here(lambda prompts, dropped: iter([(0, Reply(error="9000 tokens exceed the context"))]))
    response = httpx.post(f"{url}/generate", json=HELLO)
    assert (response.status_code, error_of(response)) == (422, "9000 tokens exceed the context")


def test_parts_are_counted_before_they_are_validated(serve_here):
    url = serve_here(json_tokens=300)
    many = {"messages": [{"role": "user", "content": [{"type": "text", "text": ""}] * 200}]}
    response = httpx.post(f"{url}/generate", json=many)
    assert (response.status_code, "more than 300 JSON tokens" in error_of(response)) == (413, True)
    # commas and brackets in a text are no values
    spoken = {"messages": [{"role": "user", "content": 'a "quoted\\" [list], {of}, ' * 200}]}
    assert httpx.post(f"{url}/generate", json=spoken).status_code == 200


def test_a_name_that_was_made_to_point_here_is_refused_unless_a_token_keeps_strangers_out(serve_here):
    url = serve_here()
    for host, status in (("rebind.evil", 400), ("rebind.evil:80", 400), ("localhost:9", 200), ("[::1]:9", 200)):
        assert httpx.get(f"{url}/health", headers={"Host": host}).status_code == status
        assert httpx.post(f"{url}/generate", json=HELLO, headers={"Host": host}).status_code == status
    locked = serve_here(token="s3cret")
    named = {"Host": "judge.example", "Authorization": "Bearer s3cret"}
    assert httpx.post(f"{locked}/generate", json=HELLO, headers=named).status_code == 200


def test_health_tells_nothing_of_the_model(serve_here):
    assert "echo" not in httpx.get(f"{serve_here(token='s3cret')}/health").text


def test_pictures_are_counted_as_what_they_take_while_they_are_decoded(serve_here, images):
    # 32 x 32 pixels: 3 kB of RGB, and 8 kB more while Pillow decodes and converts
    part = {"type": "image", "image": encode_png(images[0])}
    body = {"messages": [{"role": "user", "content": [part]}]}
    sent = httpx.Request("POST", "http://x", json=body).content
    size = len(sent) + TOKEN_BYTES * count_tokens(sent, 1000)
    assert httpx.post(f"{serve_here(held_bytes=size + 11 * 1024 - 1)}/generate", json=body).status_code == 429
    assert httpx.post(f"{serve_here(held_bytes=size + 11 * 1024)}/generate", json=body).status_code == 200
