"""A remote environment is the local one, whatever becomes of its server."""

import dataclasses
import json
import threading

import httpx
import numpy as np
import pytest

from lookact.envs.remote.client import RemoteEnv, ServerSpec
from lookact.envs.remote.codec import FRAME, encode, to_frame
from lookact.errors import EnvError
from lookact.rollout.collect import collect
from lookact.types import Decision

NO_UNITS = np.zeros(0, dtype=np.float32)


class Says:
    """An actor that says the words of its row one after the other."""

    version = 0

    def __init__(self, *words):
        self.words, self.turns = words, {}

    def begin(self, row, seed):
        self.turns[row] = 0

    def act(self, rows, observations):
        said = []
        for row in rows:
            said.append(Decision(self.words[self.turns[row]], NO_UNITS, NO_UNITS.astype(bool)))
            self.turns[row] += 1
        return said

    def end(self, row):
        pass


def remote(*urls, **spec):
    return RemoteEnv(ServerSpec(urls, **{"retry_s": 30.0, **spec}))


def run(envs, task, actor=None, groups=2):
    return collect(task.specs(5, "train", groups=groups), envs, actor or Says("a", "b", "c", "d"))


def steps_of(url):
    lines = httpx.get(f"{url}/metrics").text.splitlines()
    return sum(float(line.split()[-1]) for line in lines if line.startswith("lookact_steps_total"))


def test_episodes_are_those_of_this_process(serve_task, picture_task):
    here = run([picture_task.make_env()], picture_task, groups=3)
    there = run([remote(serve_task(picture_task))], picture_task, groups=3)
    assert encode(there) == encode(here)
    pair = there[0].turns[0].info["pair"]
    assert (type(pair), type(pair[1])) == (tuple, np.float32)
    assert there[0].turns[0].observation.images["view"].dtype == np.uint8


def test_what_the_environment_raises_is_told_as_in_this_process(serve_task, picture_task):
    (episode,) = run([remote(serve_task(picture_task))], picture_task, Says("a", "raise"), groups=1)
    assert len(episode.turns) == 1
    assert "the environment failed: EnvError: a wheel came off" in episode.error
    (episode,) = run([remote(serve_task(picture_task))], picture_task, Says("object"), groups=1)
    assert "info.odd is a object" in episode.error


def dropping(path, number):
    """Middleware that takes a request, lets it be answered, and hangs up instead of passing the answer on."""
    seen = []

    def around(app):
        async def wrapped(scope, receive, send):
            if scope["type"] != "http" or scope["path"] != path:
                return await app(scope, receive, send)
            seen.append(path)
            if len(seen) != number:
                return await app(scope, receive, send)

            async def lose(event):
                pass

            await app(scope, receive, lose)
            raise ConnectionError("the answer is lost")

        return wrapped

    return around


@pytest.mark.parametrize(("path", "number"), [("/step", 1), ("/step", 4), ("/reset", 1), ("/reset", 2)])
def test_an_answer_that_is_lost_is_asked_for_again_and_no_step_is_taken_twice(serve_task, picture_task, path, number):
    here = run([picture_task.make_env()], picture_task)
    picture_task.steps = 0
    there = run([remote(serve_task(picture_task, around=dropping(path, number)))], picture_task)
    assert encode(there) == encode(here)
    assert picture_task.steps == sum(len(episode.turns) for episode in here)


class Closing(Says):
    """Closes every session of the server before a turn."""

    def __init__(self, url, turn, *words):
        super().__init__(*words)
        self.url, self.turn = url, turn

    def act(self, rows, observations):
        if self.turns[rows[0]] == self.turn:
            for env in self.envs:
                httpx.post(f"{self.url}/close", json={"session": env._session[1]}).raise_for_status()
        return super().act(rows, observations)


@pytest.mark.parametrize("turn", [0, 2, 3])
def test_a_session_that_is_lost_is_replaced_and_the_episode_goes_on_where_it_was(serve_task, picture_task, turn):
    here = run([picture_task.make_env()], picture_task)
    url = serve_task(picture_task)
    actor = Closing(url, turn, "a", "b", "c", "d")
    actor.envs = [remote(url)]
    assert encode(run(actor.envs, picture_task, actor)) == encode(here)
    actor.envs = [remote(url, replacements=0)]
    failed = run(actor.envs, picture_task, actor, groups=1)[0]
    assert "1 sessions were lost in one episode" in failed.error
    assert len(failed.turns) == turn


def test_a_session_that_ended_between_two_episodes_is_no_loss(serve_task, picture_task):
    url = serve_task(picture_task)
    env = remote(url, replacements=0)
    env.reset(seed=1, options={})
    httpx.post(f"{url}/close", json={"session": env._session[1]})
    env.reset(seed=1, options={})
    assert env.step("a")[1] == 1 / 3


def test_a_task_that_is_not_seeded_is_found_out_when_its_episode_is_run_again(serve_task, picture_task):
    picture_task.unseeded = True
    url = serve_task(picture_task)
    actor = Closing(url, 2, "a", "b", "c", "d")
    actor.envs = [remote(url)]
    (episode,) = run(actor.envs, picture_task, actor, groups=1)
    assert "an episode run again differs at turn 0: its task is not seeded" in episode.error


def test_an_environment_that_hangs_is_replaced(serve_task, picture_task):
    from lookact.envs.remote.app import LIMITS

    url = serve_task(picture_task, limits=dataclasses.replace(LIMITS, request_seconds=0.5))
    env = remote(url)
    env.reset(seed=1, options={})
    env.step("a")
    finished = []

    def step():
        finished.append(env.step("hang"))

    thread = threading.Thread(target=step)
    thread.start()
    assert picture_task.hanging.wait(60)
    while len(picture_task.made) < 2:
        thread.join(0.01)
    # the second session's environment no longer hangs
    picture_task.let_go.set()
    thread.join(60)
    assert finished[0][0].text == "turn 2"


def test_a_server_that_is_away_fails_the_episode_in_one_line_and_is_not_waited_for_twice(free_port, picture_task):
    url = f"http://127.0.0.1:{free_port}"
    envs = [remote(url, retry_s=0.3) for _ in range(20)]
    episodes = run(envs, picture_task, groups=20)
    assert [len(episode.turns) for episode in episodes] == [0] * 20
    assert f"no answer from {url}/open within 0.3 s" in episodes[0].error
    assert "lookact env-server" in episodes[0].error
    assert all("within 0 s" in episode.error for episode in episodes[1:])


def test_another_server_takes_over(serve_task, picture_task, free_port):
    here = run([picture_task.make_env()], picture_task, groups=4)
    gone, there = f"http://127.0.0.1:{free_port}", serve_task(picture_task)
    episodes = run([remote(gone, there, retry_s=0.2) for _ in range(2)], picture_task, groups=4)
    assert encode(episodes) == encode(here)


def test_a_full_server_is_waited_for(serve_task, picture_task, wait_for):
    url = serve_task(picture_task, max_sessions=1)
    first, second = remote(url), remote(url)
    first.reset(seed=1, options={})
    begun = []
    thread = threading.Thread(target=lambda: begun.append(second.reset(seed=1, options={})))
    thread.start()
    wait_for(lambda: 'status="429"' in httpx.get(f"{url}/metrics").text)
    assert not begun
    first.close()
    thread.join(60)
    assert begun[0][0].text == "turn 0"


def test_environments_of_many_threads_do_not_mix(serve_task, picture_task):
    url = serve_task(picture_task)
    here = run([picture_task.make_env()], picture_task, groups=8)
    episodes = {}

    def work(number):
        spec = picture_task.specs(5, "train", groups=8)[number]
        episodes[number] = collect([spec], [remote(url)], Says("a", "b", "c", "d"))[0]

    threads = [threading.Thread(target=work, args=(number,)) for number in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)
    assert encode([episodes[number] for number in range(8)]) == encode(here)


ARRAY = {"dtype": "uint8", "shape": [1, 1, 3], "data": "AAAA"}
SEEN = {"$Observation": {"text": "x", "images": {"view": {"$array": ARRAY}}}}
GOOD = {"observation": SEEN, "info": {}, "reward": 0.5, "terminated": False, "truncated": False}


def with_array(**changes):
    return GOOD | {"observation": {"$Observation": {"images": {"view": {"$array": ARRAY | changes}}}}}


LIES = {
    "no JSON": b"<html>",
    "nesting": b"[" * 100_000,
    "a list": [],
    "nothing": {},
    "a text for an observation": GOOD | {"observation": "x"},
    "another record": GOOD | {"observation": {"$EpisodeSpec": {"id": "x", "group": 0, "seed": 0}}},
    "too few bytes": with_array(shape=[9, 9, 3]),
    "a huge shape": with_array(shape=[2**40, 2**40, 3]),
    "a negative shape": with_array(shape=[-1, -1, 3]),
    "a flat image": with_array(shape=[3]),
    "an image of floats": with_array(dtype="float16", shape=[1, 2, 1], data="AAAAAA=="),
    "an empty image": with_array(shape=[0, 0, 3], data=""),
    "a pickle": with_array(dtype="object"),
    "a reward of text": GOOD | {"reward": "1"},
    "a reward of true": GOOD | {"reward": True},
    "an end of 1": GOOD | {"terminated": 1},
    "an info of nothing": GOOD | {"info": None},
    "a torn frame": b"1234",
    "parts that are not there in a frame": (2**60).to_bytes(8, "little") * 2,
    "bytes for an info in a frame": to_frame(GOOD | {"info": {"a": b"x"}}),
}


@pytest.mark.parametrize("what", LIES)
def test_a_server_that_lies_is_told_so_in_one_line(serve_app, what):
    lie = LIES[what]

    async def app(scope, receive, send):
        if scope["type"] == "lifespan":
            for _ in range(2):
                kind = (await receive())["type"]
                await send({"type": f"{kind}.complete"})
            return
        answer = {"/open": {"session": "s"}, "/reset": {"observation": SEEN, "info": {}}}.get(scope["path"], lie)
        body = answer if isinstance(answer, bytes) else json.dumps(answer).encode()
        headers = [(b"content-type", FRAME.encode())] if answer is lie and what.endswith("frame") else []
        await send({"type": "http.response.start", "status": 200, "headers": headers})
        await send({"type": "http.response.body", "body": body})

    from lookact.envs.remote.app import LIMITS

    env = remote(serve_app(app, LIMITS))
    env.reset(seed=1, options={})
    with pytest.raises(EnvError, match=r"answered with .*: is it a lookact env-server of this version\?") as caught:
        env.step("a")
    assert "\n" not in str(caught.value)
    assert len(str(caught.value)) < 400
