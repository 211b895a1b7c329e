import os
import threading

import pytest

from lookact.envs.wrappers.process_env import ProcessEnv
from lookact.errors import EnvError
from lookact.types import Observation

BUSY = 120.0
"""Seconds that a process may take to start on a busy machine."""


class Moody:
    """Does what it is told: goes on, raises, hangs or dies."""

    def reset(self, *, seed, options):
        if options.get("broken"):
            raise OSError("no such room")
        return Observation(text=f"{seed} in {os.getpid()}"), {}

    def step(self, action):
        if action == "raise":
            raise RuntimeError("the floor gave way")
        if action == "hang":
            threading.Event().wait()
        if action == "die":
            os._exit(3)
        return Observation(text=f"did {action}"), 1.0, action == "end", False, {"action": action}

    def close(self):
        pass


def make_nothing():
    raise ValueError("no license")


@pytest.fixture
def env():
    made = ProcessEnv(Moody, timeout_s=BUSY)
    yield made
    made.close()


def test_it_answers_from_another_process(env):
    observation, _ = env.reset(seed=5, options={})
    seed, pid = observation.text.split(" in ")
    assert seed == "5"
    assert int(pid) != os.getpid()
    observation, reward, terminated, truncated, info = env.step("go")
    assert (observation.text, reward, terminated, truncated, info) == ("did go", 1.0, False, False, {"action": "go"})


def test_what_it_raises_is_raised_here_and_it_goes_on(env):
    with pytest.raises(EnvError, match="OSError: no such room"):
        env.reset(seed=0, options={"broken": True})
    first = env.reset(seed=0, options={})[0].text
    with pytest.raises(EnvError, match="RuntimeError: the floor gave way"):
        env.step("raise")
    assert env.reset(seed=0, options={})[0].text == first


@pytest.mark.parametrize(("mood", "message"), [("hang", "did not answer in 0.2 s"), ("die", "the worker died")])
def test_one_that_hangs_or_dies_is_made_anew_at_its_reset(env, mood, message):
    before = env.reset(seed=0, options={})[0].text
    env.timeout_s = 0.2 if mood == "hang" else BUSY
    with pytest.raises(EnvError, match=message):
        env.step(mood)
    with pytest.raises(EnvError, match="reset it first"):
        env.step("go")
    env.timeout_s = BUSY
    assert env.reset(seed=0, options={})[0].text != before


def test_one_that_cannot_be_made_says_why():
    env = ProcessEnv(make_nothing, timeout_s=BUSY)
    with pytest.raises(EnvError, match="ValueError: no license"):
        env.reset(seed=0, options={})
    env.close()
