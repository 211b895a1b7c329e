"""The actor over an engine that is not the learner's; the engine here is a copy of the model, vLLM has its own file."""

import dataclasses
from contextlib import ExitStack
from types import SimpleNamespace

import numpy as np
import pytest

from lookact.algorithms.rollouts import LocalRollouts
from lookact.errors import StaleWeights, TokenMismatch
from lookact.models.vlm.loading import merged_state
from lookact.rollout.collect import EnvPool, collect
from lookact.rollout.samplers.hf import HFSampler
from lookact.rollout.samplers.settings import Concurrency, Sampling
from lookact.rollout.samplers.vllm import VllmSampler
from lookact.rollout.weight_sync import scored_gap
from lookact.seeding import derive
from lookact.types import EpisodeSpec, Observation

SAMPLING = Sampling(max_tokens=9, min_action_tokens=1)
SPECS = [EpisodeSpec(id=f"e{i}", group=i // 2, seed=i, options={"turns": 2 + i % 4}) for i in range(6)]


def decisions(episodes):
    return [turn.decision for episode in episodes for turn in episode.turns]


@pytest.mark.slow
@pytest.mark.parametrize("changes", [{}, {"max_context": 60}])
def test_greedy_decisions_are_those_of_the_learners_own_engine(chat, copy_engine, toy_envs, changes):
    sampling = dataclasses.replace(SAMPLING, greedy=True, **changes)
    ours = decisions(collect(SPECS, toy_envs, HFSampler(chat, sampling, system="Look.")))
    theirs = decisions(collect(SPECS, toy_envs, VllmSampler(chat, copy_engine, sampling, system="Look.")))
    assert len(ours) == len(theirs) > 10
    assert {decision.fresh for decision in ours} == {True, False}
    for a, b in zip(ours, theirs):
        assert (a.action, a.fresh, a.mask_method) == (b.action, b.fresh, b.mask_method)
        assert a.token_ids.tolist() == b.token_ids.tolist()
        assert a.prompt_ids.tolist() == b.prompt_ids.tolist()
        assert a.mask.tolist() == b.mask.tolist()
        np.testing.assert_allclose(a.logprobs, b.logprobs, atol=1e-4)


@pytest.mark.slow
@pytest.mark.parametrize("filters", [{}, {"temperature": 0.7}, {"top_k": 20, "top_p": 0.8}, {"max_context": 60}])
def test_sampled_logprobs_are_the_learners(chat, copy_engine, toy_envs, filters):
    sampling = dataclasses.replace(SAMPLING, **filters)
    episodes = collect(SPECS, toy_envs, VllmSampler(chat, copy_engine, sampling))
    assert scored_gap(chat, episodes, sampling) < 1e-4


def test_images_of_any_size_reach_the_engine_as_the_learner_sees_them(chat, copy_engine):
    actor = VllmSampler(chat, copy_engine, SAMPLING)
    actor.begin(0, 0)
    image = np.random.default_rng(0).integers(0, 256, (150, 70, 3), dtype=np.uint8)
    (decision,) = actor.act([0], [Observation("Look.", {"head": image})])
    (prompt,) = actor._rows.values()
    assert [image.shape for image in prompt.images] == [(128, 64, 3)]
    assert (decision.prompt_ids == chat.image_pad_id).sum() == 8


def test_the_same_spec_gets_the_same_replies(chat, copy_engine, toy_envs):
    first, again = (decisions(collect(SPECS[:3], toy_envs, VllmSampler(chat, copy_engine, SAMPLING))) for _ in range(2))
    alone = decisions(collect(SPECS[:1], toy_envs, VllmSampler(chat, copy_engine, SAMPLING)))
    assert [d.action for d in first] == [d.action for d in again]
    assert [d.action for d in alone] == [d.action for d in first[: len(alone)]]


def test_a_reply_of_other_weights_is_refused(chat, copy_engine, toy_envs):
    with pytest.raises(StaleWeights, match="replied with weights 0, the learner is at 3"):
        collect(SPECS[:1], toy_envs, VllmSampler(chat, copy_engine, SAMPLING, version=3))


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda r: dataclasses.replace(r, prompt_ids=r.prompt_ids[:-2]), "learner counts"),
        (
            lambda r: dataclasses.replace(r, prompt_ids=np.where(np.arange(len(r.prompt_ids)) == 4, 1, r.prompt_ids)),
            "4:",
        ),
        (lambda r: dataclasses.replace(r, logprobs=r.logprobs[:-1]), "one a token is due"),
        (lambda r: dataclasses.replace(r, token_ids=r.token_ids[:0], logprobs=r.logprobs[:0]), "0 log-probs for 0"),
    ],
)
def test_an_engine_that_reads_or_counts_other_tokens_is_refused(chat, copy_engine, toy_envs, change, message):
    poll = copy_engine.poll
    copy_engine.poll = lambda timeout_s: [(number, change(reply)) for number, reply in poll(timeout_s)]
    with pytest.raises(TokenMismatch, match=message):
        collect(SPECS[:1], toy_envs, VllmSampler(chat, copy_engine, SAMPLING))


def test_a_call_that_fails_leaves_the_conversations_as_they_were(chat, copy_engine, toy_envs):
    actor, broken = VllmSampler(chat, copy_engine, SAMPLING), VllmSampler(chat, copy_engine, SAMPLING)
    poll, shown = copy_engine.poll, toy_envs[0].reset(seed=0, options={})[0]
    for other in (actor, broken):
        other.begin(0, 7)

    def fail(timeout_s):
        raise OSError("gone")

    copy_engine.poll = fail
    with pytest.raises(OSError, match="gone"):
        broken.act([0], [shown])
    copy_engine.poll = poll
    assert broken.act([0], [shown])[0].action == actor.act([0], [shown])[0].action


def test_no_conversation_waits_for_the_reply_of_another(chat, copy_engine, toy_envs):
    batches = VllmSampler(chat, copy_engine, SAMPLING)
    # an actor with `act` alone takes its turns in lock-step
    lockstep = SimpleNamespace(version=0, begin=batches.begin, act=batches.act, end=batches.end)
    expected = collect(SPECS, toy_envs, lockstep)
    reply, held, left = copy_engine.poll, derive(SPECS[0].seed, "sample", 0), []

    def poll(timeout_s):
        """The first spec's first reply comes when nothing else is asked for."""
        slow = [number for number, (prompt, _) in copy_engine.asked.items() if prompt.seed == held]
        parked = {number: copy_engine.asked.pop(number) for number in slow if len(copy_engine.asked) > 1}
        replies = reply(timeout_s)
        copy_engine.asked |= parked
        left.append(len(copy_engine.asked))
        return replies

    copy_engine.poll = poll
    episodes = collect(SPECS, toy_envs[:2], VllmSampler(chat, copy_engine, SAMPLING))
    # all turns of the five others, then those of the first
    assert left == [1] * sum(len(episode.turns) for episode in episodes[1:]) + [0] * len(episodes[0].turns)
    for a, b in zip(decisions(expected), decisions(episodes), strict=True):
        assert a.token_ids.tolist() == b.token_ids.tolist()
        np.testing.assert_allclose(a.logprobs, b.logprobs, atol=1e-4)


def test_conversations_go_on_while_environments_step_in_threads(chat, copy_engine, toy_envs):
    inline = decisions(collect(SPECS, toy_envs, VllmSampler(chat, copy_engine, SAMPLING)))
    threaded = decisions(collect(SPECS, toy_envs, VllmSampler(chat, copy_engine, SAMPLING), threads=True))
    assert [d.token_ids.tolist() for d in inline] == [d.token_ids.tolist() for d in threaded]


def test_a_reply_that_a_failed_call_had_asked_for_is_not_taken_for_an_answer(chat, copy_engine, toy_envs):
    actor, shown = VllmSampler(chat, copy_engine, SAMPLING), toy_envs[0].reset(seed=0, options={})[0]
    actor.begin(0, 7)
    actor.send(0, shown)
    actor.send(0, shown)
    assert len(actor.receive(None) + actor.receive(None)) == 1


def test_evaluation_is_by_the_engine_that_samples_with_the_weights_of_now(chat, copy_engine, toy_envs):
    actor, pushed = VllmSampler(chat, copy_engine, SAMPLING, system="Look."), []

    def sync(version):
        pushed.append(version)
        copy_engine.load(merged_state(chat), version)
        actor.version = version
        return {}

    def rollouts(actor):
        return LocalRollouts(chat, actor, None, sync, central=False, closing=ExitStack())

    opened = rollouts(actor)
    with opened.engine_actor(dataclasses.replace(SAMPLING, greedy=True), 3) as greedy:
        assert (greedy.engine, greedy.system, greedy.params["temperature"]) == (copy_engine, "Look.", 0.0)
        assert {episode.policy_version for episode in collect(SPECS[:2], toy_envs, greedy)} == {3}
    with opened.engine_actor(SAMPLING, 3):
        assert pushed == [3]
    with rollouts(HFSampler(chat, SAMPLING)).engine_actor(SAMPLING, 3) as none:
        assert none is None


def test_an_engine_is_awake_to_take_weights_and_to_sample_and_asleep_otherwise(chat, copy_engine, monkeypatch):
    happened = []
    for name in ("wake", "sleep"):
        monkeypatch.setattr(copy_engine, name, lambda name=name: happened.append(name))
    actor = VllmSampler(chat, copy_engine, SAMPLING)

    def sync(version):
        happened.append("push")
        return {}

    envs = EnvPool(lambda: None, Concurrency())
    monkeypatch.setattr(envs, "collect", lambda specs, actor: happened.append("sample") or [])
    rollouts = LocalRollouts(chat, actor, envs, sync, central=False, closing=ExitStack())
    rollouts.collect(SPECS, 1)
    rollouts.collect(SPECS, 1)
    with rollouts.engine_actor(SAMPLING, 2):
        happened.append("evaluate")
    assert happened == [
        *("wake", "push", "sample", "sleep"),
        *("wake", "sample", "sleep"),
        *("wake", "push", "evaluate", "sleep"),
    ]
