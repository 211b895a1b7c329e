"""The actor over an engine that is not the learner's; the engine here is a copy of the model, vLLM has its own file."""

import dataclasses

import numpy as np
import pytest

from lookact.errors import StaleWeights, TokenMismatch
from lookact.rollout.collect import collect
from lookact.rollout.samplers.hf import HFSampler
from lookact.rollout.samplers.settings import Sampling
from lookact.rollout.samplers.vllm import VllmSampler
from lookact.rollout.weight_sync import scored_gap
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
    generate = copy_engine.generate
    copy_engine.generate = lambda prompts, params: [change(reply) for reply in generate(prompts, params)]
    with pytest.raises(TokenMismatch, match=message):
        collect(SPECS[:1], toy_envs, VllmSampler(chat, copy_engine, SAMPLING))


def test_a_call_that_fails_leaves_the_conversations_as_they_were(chat, copy_engine, toy_envs):
    actor, broken = VllmSampler(chat, copy_engine, SAMPLING), VllmSampler(chat, copy_engine, SAMPLING)
    generate, shown = copy_engine.generate, toy_envs[0].reset(seed=0, options={})[0]
    for other in (actor, broken):
        other.begin(0, 7)

    def fail(prompts, params):
        raise OSError("gone")

    copy_engine.generate = fail
    with pytest.raises(OSError, match="gone"):
        broken.act([0], [shown])
    copy_engine.generate = generate
    assert broken.act([0], [shown])[0].action == actor.act([0], [shown])[0].action
