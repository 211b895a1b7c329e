import asyncio
import json

import pytest

from lookact.serving.limits import Budget, Limits
from lookact.serving.metrics import Metrics
from lookact.serving.middleware import RequestMiddleware, count_tokens, error_response, place

LIMITS = Limits(body_bytes=10)


def admit(events, *, headers=(), path="/generate", budget=None, token=""):
    """What a application behind the middleware answers to a stream of events, and what it read of it."""
    its_budget, metrics, sent, bodies, taken = budget or Budget(1000), Metrics({}), [], [], []
    events = iter(events)

    async def app(scope, receive, send):
        bodies.append((await receive())["body"])
        await send({"type": "http.response.start", "status": 200, "headers": []})
        await send({"type": "http.response.body", "body": b""})

    async def receive():
        taken.append(1)
        return next(events)

    async def send(event):
        sent.append(event)

    shared = {"limits": LIMITS, "budget": its_budget, "metrics": metrics}
    middleware = RequestMiddleware(app, **shared, methods={"/generate": "POST"}, token=token)
    headers = [(b"content-type", b"application/json"), *headers]
    asyncio.run(middleware({"type": "http", "method": "POST", "path": path, "headers": headers}, receive, send))
    status = next((event["status"] for event in sent if "status" in event), None)
    return status, bodies, len(taken), its_budget.held, metrics.render()


def chunk(data, more=False):
    return {"type": "http.request", "body": data, "more_body": more}


def test_chunks_reach_the_application_as_one_body_and_are_given_back():
    status, bodies, _, held, page = admit([chunk(b"ab", True), chunk(b"cd", True), chunk(b"")])
    assert (status, bodies, held) == (200, [b"abcd"], 0)
    assert 'lookact_requests_total{path="/generate",status="200"} 1' in page


def test_who_leaves_half_way_holds_nothing():
    status, bodies, _, held, page = admit([chunk(b"ab", True), {"type": "http.disconnect"}])
    assert (status, bodies, held) == (None, [], 0)
    assert "lookact_dropped_total 1" in page


@pytest.mark.parametrize(
    ("headers", "reads"),
    [
        ([(b"content-length", b"41")], 0),
        ([(b"content-length", b"11"), (b"expect", b"100-continue")], 0),
        ([(b"content-length", b"12")], 2),
        ([], 2),
    ],
)
def test_a_body_too_large_is_read_only_where_its_sender_would_not_hear_the_answer_otherwise(headers, reads):
    status, bodies, taken, held, _ = admit([chunk(b"x" * 6, True), chunk(b"x" * 6)], headers=headers)
    assert (status, bodies, taken, held) == (413, [], reads, 0)


def test_a_body_without_end_is_cut_off():
    status, _, taken, held, _ = admit(chunk(b"xxxxx", True) for _ in range(1000))
    # nine chunks of 5 bytes pass four times the limit of 10
    assert (status, taken, held) == (413, 9, 0)


def test_a_body_beyond_what_is_left_of_the_budget_is_put_off():
    budget = Budget(5)
    status, _, _, held, _ = admit([chunk(b"abc", True), chunk(b"def")], budget=budget)
    assert (status, held) == (429, 0)


def test_an_unknown_path_is_not_a_series_of_its_own():
    assert 'path="other",status="200"' in admit([chunk(b"")], path="/x/123")[-1]


def test_a_wrong_token_is_found_before_the_body_is_read():
    status, _, taken, _, _ = admit([chunk(b"")], headers=[(b"authorization", b"Bearer x")], token="y")
    assert (status, taken) == (401, 0)


def test_an_error_is_one_line_of_json_whatever_it_says():
    response = error_response(422, "two\nlines and half a \ud800 pair", {"Retry-After": "3"})
    assert b"\n" not in response.body
    error = json.loads(response.body)["error"]
    assert (error["type"], error["code"]) == ("invalid_request_error", 422)
    assert error["message"].startswith("two lines")
    assert response.headers["retry-after"] == "3"
    assert json.loads(error_response(500, "x").body)["error"]["type"] == "server_error"


def test_a_place_is_told_without_the_names_of_types():
    assert place(("body", "messages", 0, "content", "list[tagged-union[A,B]]", 1)) == "messages.0.content.1"
    assert place(("body",)) == "body"


@pytest.mark.parametrize(
    ("body", "tokens"),
    [
        (b'{"a": [1, 2, {"b": "x,y,[{"}]}', 8),
        (b'"' + b"\\" + b'",,,"', 1),
        (b'["' + b'\\"' * 500_000, 2),
    ],
)
def test_tokens_are_counted_outside_of_strings_and_in_linear_time(body, tokens):
    assert count_tokens(body, tokens - 1) == tokens
    assert count_tokens(body, tokens) == tokens
