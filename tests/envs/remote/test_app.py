"""The environment server's routes, limits and sessions."""

import dataclasses
import threading

import httpx
import numpy as np
import pytest

from lookact.envs.remote.app import LIMITS
from lookact.envs.remote.codec import FRAME, decode, from_frame

JSON = {"Content-Type": "application/json"}


def error_of(response):
    assert "\n" not in response.text
    return response.json()["error"]["message"]


def post(url, path, body, status=200):
    answer = httpx.post(f"{url}{path}", json=body, timeout=60)
    assert answer.status_code == status, answer.text
    return answer.json() if status == 200 else error_of(answer)


def open_session(url, **reset):
    session = post(url, "/open", {})["session"]
    post(url, "/reset", {"session": session, "seed": 1, **reset})
    return session


def test_a_session_resets_and_steps(serve_task, picture_task):
    url = serve_task(picture_task)
    session = post(url, "/open", {})["session"]
    assert len(session) >= 20
    begun = post(url, "/reset", {"session": session, "seed": 1, "options": {"a": {"$tuple": [1, 2]}}})
    assert begun["observation"]["$Observation"]["text"] == "turn 0"
    assert begun["info"]["options"] == {"a": {"$tuple": [1, 2]}}
    stepped = post(url, "/step", {"session": session, "turn": 1, "action": "a"})
    assert (stepped["reward"], stepped["terminated"], stepped["truncated"]) == (1 / 3, False, False)
    assert httpx.get(f"{url}/health").json() == {"status": "ok", "sessions": 1}
    assert post(url, "/close", {"session": session}) == {"closed": True}
    assert post(url, "/close", {"session": session}) == {"closed": False}
    facts = httpx.get(f"{url}/task").json()
    assert (facts["protocol"], facts["task"], facts["image_size"]) == (1, "picture", 32)


def test_a_frame_is_given_to_those_who_ask_for_one_and_says_what_the_json_does(serve_task, picture_task):
    url = serve_task(picture_task)
    told = []
    for accept in ("application/json", FRAME):
        session = open_session(url)
        body = {"session": session, "turn": 1, "action": "a"}
        answer = httpx.post(f"{url}/step", json=body, headers={"Accept": accept}, timeout=60)
        assert answer.headers["content-type"] == accept
        told.append(decode(from_frame(answer.content) if accept == FRAME else answer.json()))
    assert told[0]["observation"].text == told[1]["observation"].text == "turn 1"
    for camera, image in told[0]["observation"].images.items():
        assert np.array_equal(image, told[1]["observation"].images[camera])
    # asked for again in the other form it is no repetition, and no step is taken
    steps = picture_task.steps
    post(url, "/step", body, 409)
    assert picture_task.steps == steps


def test_turns_come_one_after_the_other(serve_task, picture_task):
    url = serve_task(picture_task)
    session = post(url, "/open", {})["session"]
    assert "turn 1 does not follow turn -1: reset first" in post(
        url, "/step", {"session": session, "turn": 1, "action": "a"}, 409
    )
    post(url, "/reset", {"session": session, "seed": 1})
    first = post(url, "/step", {"session": session, "turn": 1, "action": "a"})
    assert post(url, "/step", {"session": session, "turn": 1, "action": "a"}) == first
    assert picture_task.steps == 1
    for turn, action in ((1, "b"), (3, "a")):
        post(url, "/step", {"session": session, "turn": turn, "action": action}, 409)
    assert picture_task.steps == 1
    assert "came off" in post(url, "/step", {"session": session, "turn": 2, "action": "raise"}, 422)
    post(url, "/step", {"session": session, "turn": 2, "action": "a"}, 409)


@pytest.mark.parametrize(
    ("path", "body", "status", "told"),
    [
        ("/open", b"{", 400, "not JSON"),
        ("/open", b"[" * 200_000, 400, ""),
        ("/open", b"[" * 2_000_000, 413, "tokens"),
        ("/open", b'{"task_seed": -1}', 422, "task_seed"),
        ("/open", b'{"task_seed": 1e300}', 422, "task_seed"),
        ("/reset", b"{}", 422, "session"),
        ("/reset", b'{"session": "x", "seed": 1}', 404, "no such session"),
        ("/reset", b'{"session": "x", "seed": true}', 422, "seed"),
        ("/reset", b'{"session": "x", "seed": 1, "options": []}', 422, "options"),
        ("/step", b'{"session": "x", "turn": 1, "action": "a"}', 404, "no such session"),
        ("/step", b'{"session": "x", "turn": 0, "action": "a"}', 422, "turn"),
        ("/step", b'{"session": "x", "turn": 1, "action": "' + b"a" * 100_001 + b'"}', 413, "characters"),
        ("/step", b'{"session": "' + b"x" * 65 + b'", "turn": 1, "action": "a"}', 422, "session"),
        ("/call", b'{"method": "__class__"}', 422, "method"),
        ("/call", b'{"method": "specs", "seed": 1, "split": "a", "groups": 99999999}', 422, "groups"),
        ("/call", b'{"method": "specs", "seed": 1, "split": "a", "groups": 16000, "group_size": 16000}', 422, "16384"),
        ("/call", b'{"method": "report", "episodes": [{"a": 1}]}', 422, "not an episode"),
        ("/call", b'{"method": "report", "episodes": [{"$os.system": "true"}]}', 422, "not known"),
    ],
)
def test_a_bad_body_is_told_in_one_line(serve_task, picture_task, path, body, status, told):
    url = serve_task(picture_task)
    answer = httpx.post(f"{url}{path}", content=body, headers=JSON)
    assert answer.status_code == status
    assert told in error_of(answer)


def test_options_and_actions_that_are_no_encoding_are_refused(serve_task, picture_task):
    url = serve_task(picture_task)
    session = open_session(url)
    lie = {"$array": {"dtype": "uint8", "shape": [10**9], "data": ""}}
    assert "0 bytes for an array" in post(url, "/reset", {"session": session, "seed": 1, "options": {"a": lie}}, 422)
    post(url, "/reset", {"session": session, "seed": 1})
    assert "0 bytes for an array" in post(url, "/step", {"session": session, "turn": 1, "action": lie}, 422)
    nested = "x"
    for _ in range(900):
        nested = [nested]
    post(url, "/reset", {"session": session, "seed": 1, "options": {"a": nested}}, 422)
    assert open_session(url)


def test_no_more_sessions_than_allowed_and_a_closed_one_makes_room(serve_task, picture_task):
    url = serve_task(picture_task, max_sessions=2)
    first = open_session(url)
    open_session(url)
    answer = httpx.post(f"{url}/open", json={})
    assert answer.status_code == 429
    assert answer.headers["retry-after"] == "1"
    assert "2 sessions are open" in error_of(answer)
    post(url, "/close", {"session": first})
    open_session(url)


def test_a_session_that_nobody_uses_is_closed(serve_task, picture_task, wait_for):
    url = serve_task(picture_task, idle_seconds=0.2)
    # not reset: on a busy machine it may be closed before
    session = post(url, "/open", {})["session"]
    wait_for(lambda: picture_task.closed == 1)
    assert "no such session" in post(url, "/step", {"session": session, "turn": 1, "action": "a"}, 404)


def test_an_environment_that_hangs_costs_its_session_alone_and_counts_until_it_ends(serve_task, picture_task, wait_for):
    limits = dataclasses.replace(LIMITS, request_seconds=0.3)
    url = serve_task(picture_task, limits=limits, max_sessions=2)
    session, other = open_session(url), open_session(url)
    assert "took more than 0.3 seconds" in post(url, "/step", {"session": session, "turn": 1, "action": "hang"}, 410)
    assert "hangs" in post(url, "/step", {"session": session, "turn": 1, "action": "hang"}, 410)
    post(url, "/step", {"session": other, "turn": 1, "action": "a"})
    post(url, "/close", {"session": session})
    assert httpx.get(f"{url}/health").json()["sessions"] == 2
    post(url, "/open", {}, 429)
    picture_task.let_go.set()
    wait_for(lambda: httpx.get(f"{url}/health").json()["sessions"] == 1)
    wait_for(lambda: picture_task.closed == 1)


def test_an_environment_that_cannot_be_made_leaves_no_session_behind(serve_task, picture_task, monkeypatch):
    url = serve_task(picture_task)
    monkeypatch.setattr(type(picture_task), "make_env", lambda self: 1 / 0)
    assert "make_env failed: ZeroDivisionError" in post(url, "/open", {}, 422)
    assert httpx.get(f"{url}/health").json()["sessions"] == 0


def test_sessions_step_side_by_side(serve_task, picture_task):
    url = serve_task(picture_task)
    hanging, free = open_session(url), open_session(url)
    body = {"session": hanging, "turn": 1, "action": "hang"}
    thread = threading.Thread(target=post, args=(url, "/step", body))
    thread.start()
    assert picture_task.hanging.wait(60)
    post(url, "/step", {"session": free, "turn": 1, "action": "a"})
    picture_task.let_go.set()
    thread.join(60)


def test_a_token_and_a_name_of_the_server_are_demanded(serve_task, picture_task):
    url = serve_task(picture_task, token="s3cret")
    assert httpx.get(f"{url}/health").status_code == 200
    for method, path in (("GET", "/task"), ("GET", "/metrics"), ("POST", "/open"), ("POST", "/call")):
        assert httpx.request(method, f"{url}{path}").status_code == 401
    assert httpx.post(f"{url}/open", json={}, headers={"Authorization": "Bearer s3cret"}).status_code == 200
    other = serve_task(picture_task)
    assert httpx.get(f"{other}/task", headers={"Host": "rebind.evil"}).status_code == 400
    assert httpx.post(f"{other}/open", content=b"{}", headers={"Content-Type": "text/plain"}).status_code == 415
    assert httpx.get(f"{other}/open").status_code == 405
