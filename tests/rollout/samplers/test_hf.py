import dataclasses

import numpy as np
import pytest
import torch

from lookact.data.collate import collate
from lookact.data.segments import cut
from lookact.errors import EngineError
from lookact.rollout.collect import collect
from lookact.rollout.samplers.hf import HFSampler
from lookact.rollout.samplers.settings import Sampling
from lookact.types import EpisodeSpec

SAMPLING = Sampling(max_tokens=9, min_action_tokens=1)
PLANS = [EpisodeSpec(id=f"e{i}", group=i // 2, seed=i, options={"turns": 2 + i % 4}) for i in range(6)]


def rescored(chat, episodes, sampling):
    segments = [segment for episode in episodes for segment in cut(episode, units="reply")]
    batch = collate(segments, chat.encode_images)
    scores = chat.evaluate(batch.inputs, temperature=sampling.temperature, top_k=sampling.top_k, top_p=sampling.top_p)
    return batch, scores


@pytest.mark.parametrize("filters", [{}, {"temperature": 0.7}, {"top_p": 0.8}, {"top_k": 20, "temperature": 1.3}])
def test_sampled_logprobs_equal_teacher_forced_ones_on_ragged_turns_with_images(chat, toy_envs, filters):
    sampling = dataclasses.replace(SAMPLING, **filters)
    episodes = collect(PLANS, toy_envs, HFSampler(chat, sampling))
    batch, scores = rescored(chat, episodes, sampling)
    assert batch.mask.sum() > 100
    gap = (scores.logprobs - batch.logprobs)[batch.mask].abs().max()
    assert gap < 1e-4


@pytest.mark.slow
def test_parity_holds_after_a_weight_update(chat, toy_envs):
    actor = HFSampler(chat, SAMPLING)
    optimizer = torch.optim.SGD(chat.parameters(), lr=0.5)
    for _ in range(2):
        episodes = collect(PLANS, toy_envs, actor)
        batch, scores = rescored(chat, episodes, SAMPLING)
        assert (scores.logprobs - batch.logprobs)[batch.mask].abs().max() < 1e-4
        scores.logprobs[batch.mask].mean().backward()
        optimizer.step()


def test_a_full_context_starts_afresh_and_still_agrees_with_the_learner(chat, toy_envs):
    sampling = dataclasses.replace(SAMPLING, max_context=60)
    episodes = collect(PLANS, toy_envs, HFSampler(chat, sampling))
    fresh = [[turn.decision.fresh for turn in episode.turns] for episode in episodes]
    assert all(flags[0] for flags in fresh)
    assert any(any(flags[1:]) for flags in fresh)
    batch, scores = rescored(chat, episodes, sampling)
    assert (scores.logprobs - batch.logprobs)[batch.mask].abs().max() < 1e-4


@pytest.mark.slow
def test_an_episode_depends_on_its_plan_and_not_on_its_neighbours(chat, toy_envs):
    together = collect(PLANS, toy_envs, HFSampler(chat, SAMPLING))
    alone = [collect([plan], toy_envs[:1], HFSampler(chat, SAMPLING))[0] for plan in PLANS]
    for a, b in zip(together, alone):
        assert [t.decision.action for t in a.turns] == [t.decision.action for t in b.turns]


def test_greedy_takes_the_likeliest_token(chat, toy_envs):
    sampling = dataclasses.replace(SAMPLING, greedy=True)
    first, second = (collect(PLANS[:2], toy_envs, HFSampler(chat, sampling)) for _ in range(2))
    assert [t.decision.action for e in first for t in e.turns] == [t.decision.action for e in second for t in e.turns]


def test_banned_tokens_are_never_sampled(chat, toy_envs):
    sampling = dataclasses.replace(SAMPLING, temperature=50.0)
    episodes = collect(PLANS, toy_envs, HFSampler(chat, sampling))
    ids = np.concatenate([turn.decision.token_ids for episode in episodes for turn in episode.turns])
    assert not chat.banned[torch.from_numpy(ids)].any()


def test_a_new_row_cannot_join_a_running_batch(chat, toy_envs):
    actor = HFSampler(chat, SAMPLING)
    shown = [env.reset(seed=i, options={})[0] for i, env in enumerate(toy_envs[:2])]
    actor.begin(0, 0)
    actor.act([0], shown[:1])
    actor.begin(1, 1)
    with pytest.raises(EngineError, match="begin all rows"):
        actor.act([0, 1], shown)


def test_an_environment_that_raises_becomes_an_error_and_the_others_go_on(chat, toy_envs):
    plans = [PLANS[0], EpisodeSpec(id="bad", group=0, seed=9, options={"turns": 3, "explode": 2}), PLANS[1]]
    episodes = collect(plans, toy_envs, HFSampler(chat, SAMPLING))
    assert [episode.error for episode in episodes] == [None, "RuntimeError: the floor gave way", None]
    assert [len(episode.turns) for episode in episodes] == [2, 1, 3]
