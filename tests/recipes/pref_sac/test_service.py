"""Judges behind servers that die and come back; the servers are real, over a stand-in that sees brightness."""

import os
import signal
import threading
import time

import numpy as np
import pytest

from lookact.errors import JudgeError
from lookact.models.vlm.tiny import TinySpec, make_tiny
from lookact.recipes.pref_sac.config import Asking
from lookact.recipes.pref_sac.judge import judge_name
from lookact.recipes.pref_sac.judge_data import make_corpus
from lookact.recipes.pref_sac.service import JudgeService

SECONDS = 120.0
GOAL = "to be bright"


@pytest.fixture
def pairs():
    pictures = np.random.default_rng(0).integers(0, 255, (6, 2, 1, 1, 3), dtype=np.uint8)
    return [tuple(np.broadcast_to(picture, (32, 32, 3)) for picture in pair) for pair in pictures]


def brighter(pairs):
    return [int(two.mean() > one.mean()) for one, two in pairs]


def test_a_server_that_runs_is_asked_and_a_rerun_costs_no_request(tmp_path, pairs, bright_server):
    server = bright_server()
    for requests in (len(pairs), 0):
        service = JudgeService(Asking(url=server.url), checkpoint=None, folder=tmp_path)
        assert [told.verdict for told in service.compare(pairs, GOAL)] == brighter(pairs)
        assert service.counts["requests"] == requests
        assert service.counts["pairs"] == len(pairs)
        service.close()
    server.stop()
    assert server.answered == len(pairs)


def test_a_run_that_must_not_wait_is_told_where_the_server_should_be(tmp_path, pairs, bright_server):
    server = bright_server()
    server.stop()
    service = JudgeService(Asking(url=server.url, lost="stop", patience=0.0), checkpoint=None, folder=tmp_path)
    with pytest.raises(JudgeError, match=f"no answer from {server.url}"):
        service.compare(pairs, GOAL)
    assert service.counts["pairs"] == 0


def test_a_server_that_dies_midway_is_waited_for_and_no_answer_is_asked_for_twice(tmp_path, pairs, bright_server):
    first = bright_server(last=3)
    asking = Asking(url=first.url, patience=0.2, concurrency=1)
    service = JudgeService(asking, checkpoint=None, folder=tmp_path)
    told = []
    waiting = threading.Thread(target=lambda: told.extend(service.compare(pairs, GOAL)))
    waiting.start()
    first.thread.join(SECONDS)
    second = bright_server(port=first.port)
    waiting.join(SECONDS)
    second.stop()
    assert [preference.verdict for preference in told] == brighter(pairs)
    assert first.answered + second.answered == len(pairs)
    assert service.counts["pairs"] == len(pairs)
    assert service.counts["requests"] == len(pairs)


@pytest.fixture(scope="module")
def checkpoint(tmp_path_factory):
    spec = TinySpec(hidden=32, layers=1, heads=1, key_heads=1, vision_hidden=32, vision_depth=1, image_size=32)
    return make_tiny(tmp_path_factory.mktemp("judge") / "model", corpus=make_corpus(GOAL), spec=spec)


def test_a_judge_is_named_by_its_weights(checkpoint, tmp_path):
    other = make_tiny(
        tmp_path, corpus=make_corpus(GOAL), spec=TinySpec(hidden=32, layers=1, heads=1, key_heads=1), seed=1
    )
    assert judge_name(checkpoint) == judge_name(checkpoint)
    assert judge_name(checkpoint) != judge_name(other)


@pytest.mark.slow
def test_our_own_server_is_started_again_when_it_is_killed_and_ends_with_us(checkpoint, tmp_path, pairs):
    service = JudgeService(Asking(), checkpoint=checkpoint, folder=tmp_path)
    one = [told.raw_text for told in service.compare(pairs[:3], GOAL)]
    os.kill(service.server.pid, signal.SIGKILL)
    while service.server.alive():
        time.sleep(0.01)
    both = [told.raw_text for told in service.compare(pairs, GOAL)]
    assert both[:3] == one
    assert service.server.starts == 2
    # what the first server said was kept
    assert service.counts["requests"] == len(pairs)
    assert service.counts["pairs"] == len(pairs) + 3
    pid = service.server.pid
    service.close()
    with pytest.raises(ProcessLookupError):
        os.kill(pid, 0)
