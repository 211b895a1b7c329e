import dataclasses

import numpy as np
import pytest
import torch

from lookact.data.packing import collate, to_segments
from lookact.errors import EngineError
from lookact.rollout.collect import collect
from lookact.rollout.samplers.hf import HFSampler, KVCache, extend, left_pad
from lookact.rollout.samplers.settings import Sampling
from lookact.types import EpisodeSpec

SAMPLING = Sampling(max_tokens=9, min_action_tokens=1)
SPECS = [EpisodeSpec(id=f"e{i}", group=i // 2, seed=i, options={"turns": 2 + i % 4}) for i in range(6)]


def rescored(chat, episodes, sampling):
    segments = [segment for episode in episodes for segment in to_segments(episode, loss_on="reply")]
    batch = collate(segments, chat.encode_images)
    scores = chat.evaluate(batch.inputs, temperature=sampling.temperature, top_k=sampling.top_k, top_p=sampling.top_p)
    return batch, scores


@pytest.mark.parametrize("filters", [{}, {"temperature": 0.7}, {"top_p": 0.8}, {"top_k": 20, "temperature": 1.3}])
def test_sampled_logprobs_equal_teacher_forced_ones_on_ragged_turns_with_images(chat, toy_envs, filters):
    sampling = dataclasses.replace(SAMPLING, **filters)
    episodes = collect(SPECS, toy_envs, HFSampler(chat, sampling))
    batch, scores = rescored(chat, episodes, sampling)
    assert batch.mask.sum() > 100
    gap = (scores.logprobs - batch.logprobs)[batch.mask].abs().max()
    assert gap < 1e-4


@pytest.mark.slow
def test_parity_holds_after_a_weight_update(chat, toy_envs):
    actor = HFSampler(chat, SAMPLING)
    optimizer = torch.optim.SGD(chat.parameters(), lr=0.5)
    for _ in range(2):
        episodes = collect(SPECS, toy_envs, actor)
        batch, scores = rescored(chat, episodes, SAMPLING)
        assert (scores.logprobs - batch.logprobs)[batch.mask].abs().max() < 1e-4
        scores.logprobs[batch.mask].mean().backward()
        optimizer.step()


def test_a_full_context_starts_afresh_and_still_agrees_with_the_learner(chat, toy_envs):
    sampling = dataclasses.replace(SAMPLING, max_context=60)
    episodes = collect(SPECS, toy_envs, HFSampler(chat, sampling))
    fresh = [[turn.decision.fresh for turn in episode.turns] for episode in episodes]
    assert all(flags[0] for flags in fresh)
    assert any(any(flags[1:]) for flags in fresh)
    batch, scores = rescored(chat, episodes, sampling)
    assert (scores.logprobs - batch.logprobs)[batch.mask].abs().max() < 1e-4


@pytest.mark.slow
def test_an_episode_depends_on_its_spec_and_not_on_its_neighbours(chat, toy_envs):
    together = collect(SPECS, toy_envs, HFSampler(chat, SAMPLING))
    alone = [collect([spec], toy_envs[:1], HFSampler(chat, SAMPLING))[0] for spec in SPECS]
    for a, b in zip(together, alone):
        assert [t.decision.action for t in a.turns] == [t.decision.action for t in b.turns]


def test_greedy_takes_the_likeliest_token(chat, toy_envs):
    sampling = dataclasses.replace(SAMPLING, greedy=True)
    first, second = (collect(SPECS[:2], toy_envs, HFSampler(chat, sampling)) for _ in range(2))
    assert [t.decision.action for e in first for t in e.turns] == [t.decision.action for e in second for t in e.turns]


def test_banned_tokens_are_never_sampled(chat, toy_envs):
    sampling = dataclasses.replace(SAMPLING, temperature=50.0)
    episodes = collect(SPECS, toy_envs, HFSampler(chat, sampling))
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
    specs = [SPECS[0], EpisodeSpec(id="bad", group=0, seed=9, options={"turns": 3, "explode": 2}), SPECS[1]]
    episodes = collect(specs, toy_envs, HFSampler(chat, SAMPLING))
    assert [episode.error for episode in episodes] == [None, "RuntimeError: the floor gave way", None]
    assert [len(episode.turns) for episode in episodes] == [2, 1, 3]


def append(cache, blocks, layers=2):
    """Feed blocks (b, heads, n, d) and keep what they add up to."""
    held = None
    for block in blocks:
        for layer in range(layers):
            keys, values = cache.update(block + layer, -block - layer, layer)
            wanted = block if held is None else torch.cat([held, block], dim=2)
            assert torch.equal(keys, wanted + layer)
            assert torch.equal(values, -wanted - layer)
        cache.advance(block.shape[2])
        held = wanted
        assert cache.get_seq_length() == held.shape[2]
    return held


def blocks(b, *lengths):
    generator = torch.Generator().manual_seed(0)
    return [torch.randint(0, 1000, (b, 2, n, 4), generator=generator).float() for n in lengths]


def test_what_was_appended_comes_back_across_growth():
    append(KVCache(), blocks(3, 5, 1, 1, 200, 1, 400, 1))


def test_appending_writes_in_place_until_the_buffer_is_full():
    cache = KVCache()
    first, second, third = blocks(1, 5, 7, 500)
    addresses = []
    for block in (first, second, third):
        keys, _ = cache.update(block, block, 0)
        cache.advance(block.shape[2])
        addresses.append(keys.data_ptr())
    assert addresses[0] == addresses[1] != addresses[2]


def test_rows_can_be_dropped_and_reordered_between_turns():
    cache = KVCache()
    held = append(cache, blocks(4, 6))
    cache.select(torch.tensor([3, 1]))
    (more,) = blocks(2, 3)
    keys, values = cache.update(more, more, 0)
    assert torch.equal(keys, torch.cat([held[[3, 1]], more], dim=2))
    assert torch.equal(values, torch.cat([-held[[3, 1]], more], dim=2))


def test_rows_end_together():
    ids, real = left_pad([np.array([5, 6, 7]), np.array([8])], torch.device("cpu"))
    assert ids.tolist() == [[5, 6, 7], [0, 0, 8]]
    assert real.tolist() == [[True, True, True], [False, False, True]]


@torch.no_grad()
def test_columns_fed_in_two_blocks_equal_the_stream_fed_at_once(chat):
    stream = np.array(chat.encode_text("Go to the chair. Turn 3 of 10. Turn 4 of 10."))
    positions = torch.arange(len(stream)).expand(3, 1, -1)
    ids, real = left_pad([stream], chat.device)
    whole = extend(chat, KVCache(), real, ids, positions)
    cache, half = KVCache(), len(stream) // 2
    extend(chat, cache, real[:, :half], ids[:, :half], positions[:, :, :half])
    parts = extend(chat, cache, real, ids[:, half:], positions[:, :, half:])
    torch.testing.assert_close(parts, whole, atol=1e-5, rtol=1e-5)
