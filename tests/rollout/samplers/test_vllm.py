"""The real vLLM, in this process and as a server: run by `make test-vllm`."""

import dataclasses
import importlib.util
import os
import signal
import threading
from types import SimpleNamespace

import numpy as np
import pytest
import torch

from lookact.data.packing import collate, to_segments
from lookact.errors import EngineError, StaleWeights, TokenMismatch
from lookact.models.vlm.loading import load_chat, merged_state, write_snapshot, write_tensors
from lookact.rollout.collect import collect
from lookact.rollout.samplers import vllm_server
from lookact.rollout.samplers.hf import HFSampler
from lookact.rollout.samplers.server_process import KEY
from lookact.rollout.samplers.settings import Sampling, VllmSpec
from lookact.rollout.samplers.vllm import VllmEngine, VllmSampler, engine_arguments
from lookact.rollout.samplers.vllm_server import VllmServer
from lookact.rollout.weight_sync import WeightSync, norms_of, probe_gap, scored_gap
from lookact.types import EpisodeSpec, Observation, TokenPrompt

pytestmark = [
    pytest.mark.vllm,
    pytest.mark.slow,
    pytest.mark.skipif(importlib.util.find_spec("vllm") is None, reason="vLLM is absent: `make test-vllm` runs this"),
]
SAMPLING = Sampling(max_tokens=9, min_action_tokens=1, max_context=2048)
# a busy machine is no failure
SPEC = VllmSpec(max_num_seqs=8, kv_cache_memory=0.25, start_timeout_s=1800, reply_timeout_s=900)
SPECS = [EpisodeSpec(id=f"e{i}", group=i // 2, seed=i, options={"turns": 2 + i % 4}) for i in range(6)]
LIMIT = 1e-3


@pytest.fixture(scope="module", params=["vllm", "vllm-server"])
def engine(request, tiny_folder, tmp_path_factory):
    """One engine of each kind for the whole file: every test pushes the weights it needs."""
    chat = load_chat(tiny_folder)
    start = write_snapshot(chat, merged_state(chat), tmp_path_factory.mktemp("engine") / "start")
    arguments = engine_arguments(chat, SAMPLING, SPEC)
    made = VllmEngine(start, arguments) if request.param == "vllm" else VllmServer(start, arguments, SPEC)
    yield made
    made.close()


@pytest.fixture
def actor(chat, engine):
    made = VllmSampler(chat, engine, SAMPLING, system="Look.")
    WeightSync(made, limit=LIMIT).push(merged_state(chat), 0)
    return made


@pytest.fixture
def server(engine):
    if not isinstance(engine, VllmServer):
        pytest.skip("of the server alone")
    return engine


def learn(chat, episodes):
    """One real gradient step, large enough to be seen."""
    optimizer = torch.optim.SGD(chat.parameters(), lr=0.5)
    batch = collate(
        [segment for episode in episodes for segment in to_segments(episode, loss_on="reply")], chat.encode_images
    )
    chat.evaluate(batch.inputs).logprobs[batch.mask].mean().backward()
    optimizer.step()


def test_log_probs_agree_with_the_learner_before_and_after_weight_updates(chat, actor, toy_envs):
    sync = WeightSync(actor, limit=LIMIT)
    for version in range(1, 5):
        episodes = collect(SPECS, toy_envs, actor)
        assert scored_gap(chat, episodes, SAMPLING) < LIMIT
        learn(chat, episodes)
        # the engine still acts with the old weights, and they differ
        assert probe_gap(actor) > LIMIT
        report = sync.push(merged_state(chat), version)
        assert report["policy/sync_gap"] < LIMIT
        assert report["policy/sync_changed"] > 0.5
    assert {episode.policy_version for episode in collect(SPECS, toy_envs, actor)} == {4}


@pytest.mark.parametrize("filters", [{"temperature": 0.7}, {"top_k": 20}, {"temperature": 1.3, "max_context": 60}])
def test_log_probs_are_those_of_the_filtered_distribution(chat, actor, engine, toy_envs, filters):
    sampling = dataclasses.replace(SAMPLING, **filters)
    episodes = collect(SPECS, toy_envs, VllmSampler(chat, engine, sampling))
    assert scored_gap(chat, episodes, sampling) < LIMIT


def test_greedy_decisions_are_those_of_the_learners_own_engine(chat, actor, engine, toy_envs):
    sampling = dataclasses.replace(SAMPLING, greedy=True)
    ours = collect(SPECS, toy_envs, HFSampler(chat, sampling))
    theirs = collect(SPECS, toy_envs, VllmSampler(chat, engine, sampling))
    for a, b in zip(ours, theirs):
        for one, other in zip(a.turns, b.turns):
            assert one.decision.action == other.decision.action
            assert one.decision.prompt_ids.tolist() == other.decision.prompt_ids.tolist()
            assert one.decision.mask.tolist() == other.decision.mask.tolist()
            np.testing.assert_allclose(one.decision.logprobs, other.decision.logprobs, atol=LIMIT)


def test_the_same_seed_gives_the_same_reply_and_banned_tokens_never_come(chat, actor, engine, toy_envs):
    hot = VllmSampler(chat, engine, dataclasses.replace(SAMPLING, temperature=2.0))
    first, again = (collect(SPECS, toy_envs, hot) for _ in range(2))
    ids = [turn.decision.token_ids for episode in first for turn in episode.turns]
    assert [i.tolist() for i in ids] == [t.decision.token_ids.tolist() for e in again for t in e.turns]
    assert not chat.banned[torch.from_numpy(np.concatenate(ids))].any()


def test_conversations_of_their_own_get_the_replies_that_turns_in_lock_step_get(chat, actor, toy_envs):
    # an actor with `act` alone takes its turns in lock-step
    lockstep = SimpleNamespace(version=0, begin=actor.begin, act=actor.act, end=actor.end)
    together, each = collect(SPECS, toy_envs, lockstep), collect(SPECS, toy_envs[:3], actor)
    for a, b in zip(together, each, strict=True):
        assert [t.decision.token_ids.tolist() for t in a.turns] == [t.decision.token_ids.tolist() for t in b.turns]
        for one, other in zip(a.turns, b.turns):
            np.testing.assert_allclose(one.decision.logprobs, other.decision.logprobs, atol=LIMIT)


def test_an_engine_that_did_not_take_the_weights_is_found_out(chat, actor, engine, tiny_folder, monkeypatch):
    load, old = engine.load, merged_state(load_chat(tiny_folder))
    with torch.no_grad():
        chat.causal.get_input_embeddings().weight.mul_(1.5)

    def pretend(state, version):
        load(old, version)
        return norms_of(state)

    monkeypatch.setattr(engine, "load", pretend)
    with pytest.raises(StaleWeights, match="at version 7 engine and learner differ by"):
        WeightSync(actor, limit=LIMIT).push(merged_state(chat), 7)


def test_an_engine_of_another_pixel_budget_is_found_out_by_its_first_reply(chat, actor):
    # the learner would let larger pictures pass than the engine was started with
    chat.image_processor.size["longest_edge"] = 128 * 128
    actor.begin(0, 0)
    large = np.zeros((128, 128, 3), dtype=np.uint8)
    with pytest.raises(TokenMismatch, match="prompt tokens where the learner counts"):
        actor.act([0], [Observation("Look.", {"head": large})])


def test_tampered_weights_in_the_shared_folder_are_refused_by_name(chat, actor, server, monkeypatch):
    name = "model.language_model.norm.weight"

    def tamper(state, folder):
        write_tensors({**state, name: 2 * state[name]}, folder)

    monkeypatch.setattr(vllm_server, "write_tensors", tamper)
    with pytest.raises(StaleWeights, match=rf"{name} has norm"):
        WeightSync(actor, limit=LIMIT).push(merged_state(chat), 1)


def test_a_server_killed_in_the_middle_of_a_rollout_loses_no_episode(chat, actor, server, toy_envs):
    whole = collect(SPECS, toy_envs, actor)
    turns, starts = [0], server.process.starts
    asked = server._ask

    def kill_in_the_third_turn(prompt, params):
        with lock:
            turns[0] += 1
            if turns[0] == 10:
                os.killpg(server.process.pid, signal.SIGKILL)
        return asked(prompt, params)

    lock = threading.Lock()
    server._ask = kill_in_the_third_turn
    try:
        broken = collect(SPECS, toy_envs, actor)
    finally:
        server._ask = asked
    assert server.process.starts == starts + 1
    assert [episode.id for episode in broken] == [spec.id for spec in SPECS]
    assert not [episode.error for episode in broken if episode.error]
    # the same weights and seeds: the broken rollout is the unbroken one
    assert [[t.decision.action for t in e.turns] for e in broken] == [
        [t.decision.action for t in e.turns] for e in whole
    ]
    assert scored_gap(chat, broken, SAMPLING) < LIMIT


def test_weights_can_be_pushed_to_a_server_that_died_meanwhile(chat, actor, server):
    os.killpg(server.process.pid, signal.SIGKILL)
    sync = WeightSync(actor, limit=LIMIT)
    with torch.no_grad():
        chat.causal.get_input_embeddings().weight.mul_(1.5)
    assert sync.push(merged_state(chat), 3)["policy/sync_gap"] < LIMIT


def test_a_server_that_runs_already_is_asked_by_its_address_and_left_running(
    chat, actor, server, toy_envs, tmp_path, monkeypatch
):
    whole = collect(SPECS, toy_envs, actor)
    monkeypatch.setenv(KEY, server.process.env[KEY])
    start = write_snapshot(chat, merged_state(chat), tmp_path / "start")
    spec = dataclasses.replace(SPEC, url=server.process.url)
    guest = VllmServer(start, {}, spec)
    visiting = VllmSampler(chat, guest, SAMPLING, system="Look.")
    WeightSync(visiting, limit=LIMIT).push(merged_state(chat), 7)
    again = collect(SPECS, toy_envs, visiting)
    # as after a server that somebody else replaced
    guest.restart()
    guest.close()
    assert [[t.decision.action for t in e.turns] for e in again] == [
        [t.decision.action for t in e.turns] for e in whole
    ]
    assert server.process.healthy()


def test_a_prompt_that_is_too_long_is_refused_with_the_servers_own_reason(chat, actor, server):
    server.submit(TokenPrompt([5] * 9000, (), 0), actor.params)
    with pytest.raises(EngineError, match="refused a prompt of 9000 tokens"):
        server.poll(None)
