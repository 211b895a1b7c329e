import json
import threading

import httpx

from lookact.judges.server.batching import Reply

HELLO = {"messages": [{"role": "user", "content": "hello"}], "stream": True}


def read(response):
    """The chunks of a stream, which ends with [DONE]."""
    lines = [line.removeprefix("data: ") for line in response.text.split("\n\n") if line]
    assert lines[-1] == "[DONE]"
    return [json.loads(line) for line in lines[:-1]]


def spell(prompts, dropped):
    """Gives a text piece by piece to who wants it so."""
    for index, prompt in enumerate(prompts):
        assert prompt.streamed
        for end in (1, 1, 4):
            yield index, Reply("Grüße"[:end], finish="")
        yield index, Reply("Grüße", 3, 4, "length")


def test_a_stream_is_chunks_of_text_and_how_it_ended(serve_here):
    response = httpx.post(f"{serve_here(spell)}/v1/chat/completions", json=HELLO)
    assert response.headers["content-type"].startswith("text/event-stream")
    chunks = read(response)
    assert {(chunk["object"], chunk["model"]) for chunk in chunks} == {("chat.completion.chunk", "echo")}
    assert len({chunk["id"] for chunk in chunks}) == 1
    deltas = [chunk["choices"][0]["delta"] for chunk in chunks]
    assert deltas == [{"role": "assistant", "content": ""}, {"content": "G"}, {"content": "rüß"}, {"content": "e"}, {}]
    assert [chunk["choices"][0]["finish_reason"] for chunk in chunks] == [None] * 4 + ["length"]


def test_usage_comes_last_where_it_is_asked_for(serve_here):
    body = HELLO | {"stream_options": {"include_usage": True}}
    *_, last = read(httpx.post(f"{serve_here(spell)}/v1/chat/completions", json=body))
    assert (last["choices"], last["usage"]) == ([], {"prompt_tokens": 3, "completion_tokens": 4, "total_tokens": 7})


def test_words_come_before_the_reply_is_whole(serve_here):
    told = threading.Event()

    def generate(prompts, dropped):
        yield 0, Reply("first", finish="")
        assert told.wait(60)
        yield 0, Reply("first, last", 1, 2)

    with httpx.stream("POST", f"{serve_here(generate)}/v1/chat/completions", json=HELLO, timeout=60) as response:
        for line in response.iter_lines():
            if '"first"' in line:
                told.set()
        assert told.is_set()


def test_what_is_refused_before_the_first_word_keeps_its_status(serve_here):
    url = serve_here(lambda prompts, dropped: iter([(0, Reply(error="too long"))]))
    response = httpx.post(f"{url}/v1/chat/completions", json=HELLO)
    assert (response.status_code, response.json()["error"]["message"]) == (422, "too long")

    def fails(prompts, dropped):
        raise RuntimeError("no weights")
        yield

    assert httpx.post(f"{serve_here(fails)}/v1/chat/completions", json=HELLO).status_code == 500
    assert httpx.post(f"{url}/v1/chat/completions", json=HELLO | {"model": "other"}).status_code == 404


def test_what_fails_on_the_way_is_told_in_the_stream(serve_here):
    def generate(prompts, dropped):
        yield 0, Reply("so far", finish="")
        raise RuntimeError("broken")

    response = httpx.post(f"{serve_here(generate)}/v1/chat/completions", json=HELLO)
    assert response.status_code == 200
    *_, last = [line for line in response.text.split("\n\n") if line]
    assert json.loads(last.removeprefix("data: "))["error"]["message"] == "the model failed: RuntimeError: broken"


def test_a_stream_that_takes_too_long_ends_and_one_whose_client_leaves_is_dropped(serve_here, wait_for):
    gone, waits = threading.Event(), threading.Event()

    def generate(prompts, dropped):
        yield 0, Reply("so far", finish="")
        waits.set()
        while not dropped(0):
            gone.wait(0.01)
        gone.set()

    late = httpx.post(f"{serve_here(generate, request_seconds=0.3)}/v1/chat/completions", json=HELLO)
    assert "no reply within 0.3 seconds" in late.text
    wait_for(gone.is_set)
    gone.clear()
    waits.clear()
    with httpx.stream("POST", f"{serve_here(generate)}/v1/chat/completions", json=HELLO, timeout=60) as response:
        next(response.iter_lines())
        wait_for(waits.is_set)
    wait_for(gone.is_set)
