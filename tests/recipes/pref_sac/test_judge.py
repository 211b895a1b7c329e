"""Judges behind servers that die and come back; the servers are real, over a stand-in that sees brightness."""

import json
import os
import signal
import threading
import time
from dataclasses import replace
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import numpy as np
import pytest

from lookact.algorithms.judge_training import LabelledImages, make_corpus, measure_judge, train_judge
from lookact.errors import JudgeError, JudgeRefused
from lookact.judges.goals import goal_of
from lookact.judges.vlm_judge import VLMJudge
from lookact.models.vlm.tiny import TinySpec, make_tiny
from lookact.recipes.pref_sac import judge
from lookact.recipes.pref_sac.config import PRESETS, ClientConfig, EnvConfig
from lookact.recipes.pref_sac.judge import JudgeService, judge_name, progress_of, render_labelled_images

SECONDS = 120.0
GOAL = "to be bright"
DEBUG = PRESETS["debug"]


@pytest.fixture
def pairs():
    pictures = np.random.default_rng(0).integers(0, 255, (6, 2, 1, 1, 3), dtype=np.uint8)
    return [tuple(np.broadcast_to(picture, (32, 32, 3)) for picture in pair) for pair in pictures]


def brighter(pairs):
    return [int(two.mean() > one.mean()) for one, two in pairs]


def test_a_server_that_runs_is_asked_and_a_rerun_costs_no_request(tmp_path, pairs, bright_server):
    server = bright_server()
    for requests in (len(pairs), 0):
        service = JudgeService(ClientConfig(url=server.url), checkpoint=None, folder=tmp_path)
        assert [told.verdict for told in service.compare(pairs, GOAL)] == brighter(pairs)
        assert service.counts["requests"] == requests
        assert service.counts["pairs"] == len(pairs)
        service.close()
    server.stop()
    assert server.answered == len(pairs)


def test_a_run_that_must_not_wait_is_told_where_the_server_should_be(tmp_path, pairs, bright_server):
    server = bright_server()
    server.stop()
    service = JudgeService(
        ClientConfig(url=server.url, on_timeout="stop", timeout_s=0.0), checkpoint=None, folder=tmp_path
    )
    with pytest.raises(JudgeError, match=f"no answer from {server.url}"):
        service.compare(pairs, GOAL)
    assert service.counts["pairs"] == 0


def test_a_server_that_dies_midway_is_waited_for_and_no_answer_is_asked_for_twice(tmp_path, pairs, bright_server):
    first = bright_server(last=3)
    client = ClientConfig(url=first.url, timeout_s=0.2, concurrency=1)
    service = JudgeService(client, checkpoint=None, folder=tmp_path)
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


@pytest.fixture
def refusing():
    """Starts servers that say no to everything with one status; gives the address and what was asked."""
    servers = []

    def start(status):
        asked = []

        class Refusal(BaseHTTPRequestHandler):
            def do_GET(self):
                asked.append(self.path)
                body = json.dumps({"error": {"message": "no, and no again"}}).encode()
                self.send_response(status)
                self.send_header("Content-Length", str(len(body)))
                self.end_headers()
                self.wfile.write(body)

            do_POST = do_GET

            def log_message(self, *given):
                pass

        servers.append(ThreadingHTTPServer(("127.0.0.1", 0), Refusal))
        threading.Thread(target=servers[-1].serve_forever, daemon=True).start()
        return f"http://127.0.0.1:{servers[-1].server_address[1]}", asked

    yield start
    for server in servers:
        server.shutdown()
        server.server_close()


@pytest.mark.parametrize("status", [401, 404, 422])
def test_a_refusal_stops_the_run_with_the_servers_words(tmp_path, pairs, refusing, status):
    url, asked = refusing(status)
    service = JudgeService(ClientConfig(url=url, on_timeout="wait"), checkpoint=None, folder=tmp_path)
    with pytest.raises(JudgeRefused, match=f"refused the request: {status}, no, and no again"):
        service.compare(pairs, GOAL)
    # each thread that had begun may have asked once
    assert len(asked) <= len(pairs)


def test_a_server_that_stays_away_is_waited_for_up_to_a_limit(tmp_path, pairs, refusing):
    url, asked = refusing(503)
    client = ClientConfig(url=url, on_timeout="wait", timeout_s=0.0, max_wait_s=1.0, concurrency=1)
    service = JudgeService(client, checkpoint=None, folder=tmp_path)
    with pytest.raises(JudgeError, match="503, no, and no again"):
        service.compare(pairs[:1], GOAL)
    # a pause of half a second between two tries: three fit into the limit, and one is begun before it
    assert 2 <= len(asked) <= 4


@pytest.mark.parametrize("path", ["", "/", "/v1", "/v1/"])
def test_an_address_may_end_in_v1_and_the_model_be_named(tmp_path, pairs, bright_server, path):
    server = bright_server()
    client = ClientConfig(url=server.url + path, model="bright")
    service = JudgeService(client, checkpoint=None, folder=tmp_path)
    assert [told.verdict for told in service.compare(pairs[:1], GOAL)] == brighter(pairs[:1])
    server.stop()


def test_the_key_is_read_from_the_variable_that_is_named(tmp_path, monkeypatch):
    monkeypatch.setenv("MY_KEY", "abc")
    service = JudgeService(ClientConfig(key_variable="MY_KEY"), checkpoint=None, folder=tmp_path)
    assert service.judge.client.spec.token == "abc"


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
    service = JudgeService(ClientConfig(), checkpoint=checkpoint, folder=tmp_path)
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


SHORT = EnvConfig(horizon=20, image_size=32)


def test_images_show_every_quality_and_come_again_from_its_seed():
    data = render_labelled_images(SHORT, 45, seed=0)
    assert data.images.shape == (45, 32, 32, 3)
    assert data.images.dtype == np.uint8
    assert data.states.shape == (45, 3)
    assert len(np.unique(data.scores)) > 40
    again, other = render_labelled_images(SHORT, 45, seed=0), render_labelled_images(SHORT, 45, seed=1)
    assert np.array_equal(again.images, data.images)
    assert not np.array_equal(other.scores, data.scores)


def test_progress_is_what_a_picture_can_show():
    upright, fast = np.array([1.0, 0.0, 0.0], np.float32), np.array([1.0, 0.0, 8.0], np.float32)
    assert progress_of(SHORT.task, upright, -0.1) == progress_of(SHORT.task, fast, -6.4) == 0.0
    assert progress_of(SHORT.task, np.array([-1.0, 0.0, 0.0], np.float32), 0.0) == pytest.approx(-(np.pi**2))
    assert [progress_of("drawer-open-v3", upright, reward) for reward in (4.0, 0.0)] == [2.0, 0.0]


def bright_images(count, seed):
    """Images of one grey each, and how bright they are."""
    light = np.random.default_rng(seed).uniform(0.0, 1.0, count)
    images = np.broadcast_to((255 * light).astype(np.uint8)[:, None, None, None], (count, 32, 32, 3)).copy()
    return LabelledImages(images, light, light[:, None].astype(np.float32))


def test_a_judge_may_be_trained_on_other_tasks(tmp_path, monkeypatch):
    trained = []
    monkeypatch.setattr(judge, "train_judge", lambda folder, data, **how: trained.append(data))
    sft = replace(DEBUG.judge.sft, images=20, tasks=("CartPole-v1", "MountainCarContinuous-v0"))
    cfg = replace(DEBUG, env=SHORT, judge=replace(DEBUG.judge, sft=sft))
    assert judge.embedded_judge(cfg, tmp_path) == tmp_path / "model"
    ((first, second),) = [data.items() for data in trained]
    assert (first[0], second[0]) == (goal_of("CartPole-v1"), goal_of("MountainCarContinuous-v0"))
    assert [len(data.images) for _, data in (first, second)] == [10, 10]


@pytest.mark.slow
def test_a_tiny_vlm_learns_to_judge_and_says_so_over_http(tmp_path):
    sft = {"regression_epochs": 3, "qa_pairs": 1200, "epochs": 2, "batch_size": 32, "lr": 1e-3, "margin": 0.05}
    folder = train_judge(tmp_path / "model", {GOAL: bright_images(300, 0)}, **sft, seed=0)
    assert not list(tmp_path.glob(".tmp-*"))
    service = JudgeService(ClientConfig(), checkpoint=folder, folder=tmp_path)
    try:
        report = measure_judge(service, bright_images(60, 1), GOAL, pairs=120, seed=0, folder=tmp_path)
        images = bright_images(40, 2).images
        pairs = list(zip(images[::2], images[1::2]))
        words, likely = (
            [told.verdict for told in VLMJudge(service.judge.client, variant=variant).compare(pairs, GOAL)]
            for variant in ("single", "logprob")
        )
    finally:
        service.close()
    assert report["clear"]["accuracy"] > 0.9
    assert report["counts"]["unparsable"] < 6
    assert report["counts"]["pairs"] == 120
    # the greedy word is the likeliest token
    assert words == likely
