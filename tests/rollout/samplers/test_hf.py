import copy
import dataclasses
import random
import time
import weakref
from typing import get_args, get_type_hints

import numpy as np
import pytest
import torch
from torch.utils._python_dispatch import TorchDispatchMode
from transformers import AutoTokenizer

import flash_kernels
from lookact.algorithms.vlm_settings import Model
from lookact.data.packing import collate, to_segments
from lookact.models.vlm.loading import load_chat
from lookact.models.vlm.policy import ChatVLM
from lookact.ops.logprobs import NEVER, gather_logprobs, output_logits
from lookact.rollout.collect import collect
from lookact.rollout.samplers.hf import HFSampler
from lookact.rollout.samplers.kv_cache import KVCache, extend, left_pad
from lookact.rollout.samplers.settings import Sampling
from lookact.types import EpisodeSpec
from tests.rollout.conftest import ToyEnv

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


@pytest.mark.parametrize("attention", get_args(get_type_hints(Model)["attention"]))
@pytest.mark.parametrize("max_context", [4096, 60])
def test_every_attention_samples_as_it_scores(tiny_folder, toy_envs, monkeypatch, attention, max_context):
    flash_kernels.install(monkeypatch, dtypes=(torch.float32,))
    chat, sdpa = load_chat(tiny_folder, attention=attention), load_chat(tiny_folder)
    sampling = dataclasses.replace(SAMPLING, max_context=max_context)
    episodes = collect(SPECS, toy_envs, HFSampler(chat, sampling))
    for scorer in (chat, sdpa):
        batch, scores = rescored(scorer, episodes, sampling)
        assert (scores.logprobs - batch.logprobs)[batch.mask].abs().max() < 1e-4


def test_a_checkpoint_that_thinks_is_prompted_by_its_own_template(tiny_folder, toy_envs):
    tokenizer = AutoTokenizer.from_pretrained(tiny_folder)
    plain = tokenizer.apply_chat_template(
        [{"role": "user", "content": "?"}], add_generation_prompt=True, tokenize=False
    )
    chat = load_chat(tiny_folder)
    assert not chat.thinks
    reply = "{{- '<|im_start|>assistant\\n"
    tokenizer.chat_template = tokenizer.chat_template.replace(reply, reply + "<think>\\n")
    thinker = ChatVLM(chat.model, tokenizer, chat.image_processor)
    assert thinker.thinks
    (episode,) = collect(SPECS[:1], toy_envs, HFSampler(thinker, SAMPLING))
    for turn in episode.turns:
        assert tokenizer.decode(turn.decision.prompt_ids).endswith(plain[plain.rindex("<|im_start|>") :] + "<think>\n")
        # nine tokens of noise close no thought
        assert turn.decision.action.startswith("<think>\n")
        assert turn.decision.mask_method == "failed"
    batch, scores = rescored(thinker, [episode], SAMPLING)
    assert (scores.logprobs - batch.logprobs)[batch.mask].abs().max() < 1e-4


class Scripted(HFSampler):
    """Says the same in every turn, with the log-probs that the model gives it."""

    script: tuple[int, ...] = ()

    def _sample(self, hidden, uniforms):
        logits = output_logits(hidden, self.chat.output_weight).masked_fill(self.chat.banned, NEVER)
        ids = torch.full((len(hidden),), self.script[self.said % len(self.script)])
        self.said += 1
        return ids, gather_logprobs(logits, ids)

    said = 0


def thinker_of(chat):
    """The same model with the template of a Thinking checkpoint."""
    tokenizer, reply = copy.copy(chat.tokenizer), "{{- '<|im_start|>assistant\\n"
    tokenizer.chat_template = tokenizer.chat_template.replace(reply, reply + "<think>\\n")
    return ChatVLM(chat.model, tokenizer, chat.image_processor)


@pytest.mark.parametrize(("thoughts", "reuse"), [("keep", True), ("strip", True), ("strip", False)])
def test_thoughts_of_earlier_turns_are_kept_or_stripped(tiny_folder, thoughts, reuse):
    chat = thinker_of(load_chat(tiny_folder))
    said = 'Left or {"answer": "A"}?\n</think>\n\n{"answer": "B"}<|im_end|>'
    sampling = Sampling(max_tokens=80, min_action_tokens=1, thoughts=thoughts)
    actor = Scripted(chat, sampling, system="Be brief.", reuse=reuse)
    actor.script = tuple(chat.encode_text(said))
    (episode,) = collect([EpisodeSpec("e", 0, 0, options={"turns": 3})], [ToyEnv()], actor)
    asked, written = [turn.observation for turn in episode.turns], '{"answer": "B"}'
    for index, turn in enumerate(episode.turns):
        decision = turn.decision
        masked = chat.tokenizer.decode(decision.token_ids[decision.mask])
        assert (decision.mask_method, masked.strip()) == ("brace_depth", written)
        assert (decision.fresh, decision.recalls) == (index == 0 or thoughts == "strip", index * (thoughts == "strip"))
        if thoughts == "strip":
            # what a server of the checkpoint would show it: the template over the whole conversation
            turns = [(one.text, len(one.images)) for one in asked[: index + 1]]
            text = chat.spelling.conversation("Be brief.", turns, [written] * index)
            images = [image for one in asked[: index + 1] for image in one.images.values()]
            assert decision.prompt_ids.tolist() == chat.encode_prompt(text, images).tolist()
    seen = np.cumsum([len(one.images) for one in asked]).tolist()
    segments = to_segments(episode, loss_on="reply")
    assert [len(segment.images) for segment in segments] == (seen[-1:] if thoughts == "keep" else seen)
    batch, scores = rescored(chat, [episode], sampling)
    assert (scores.logprobs - batch.logprobs)[batch.mask].abs().max() < 1e-4


def test_a_conversation_that_outgrows_its_context_begins_again_though_thoughts_are_stripped(tiny_folder):
    chat = thinker_of(load_chat(tiny_folder))
    actor = Scripted(chat, Sampling(max_tokens=40, min_action_tokens=1, max_context=140, thoughts="strip"))
    actor.script = tuple(chat.encode_text('Hm.\n</think>\n\n{"answer": "B"}<|im_end|>'))
    (episode,) = collect([EpisodeSpec("e", 0, 0, options={"turns": 6})], [ToyEnv()], actor)
    assert all(turn.decision.fresh for turn in episode.turns)
    recalled = [turn.decision.recalls for turn in episode.turns]
    assert recalled[:2] == [0, 1]
    assert 0 in recalled[2:]
    assert max(len(turn.decision.prompt_ids) for turn in episode.turns) < 140 - 40
    batch, scores = rescored(chat, [episode], actor.sampling)
    assert (scores.logprobs - batch.logprobs)[batch.mask].abs().max() < 1e-4


def test_flash_attention_gets_rows_without_padding_and_half_precision(tiny_folder, toy_envs, flash_kernels):
    chat = load_chat(tiny_folder, attention="flash_attention_2", dtype="bfloat16")
    collect(SPECS, toy_envs, HFSampler(chat, SAMPLING))
    assert min(flash_kernels.calls.values()) > 0


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


@pytest.mark.parametrize("sampling", [SAMPLING, dataclasses.replace(SAMPLING, max_context=60)])
def test_rows_act_in_any_company_and_keep_their_past(chat, toy_envs, sampling):
    shown = [[env.reset(seed=i, options={})[0], *(env.step("")[0] for _ in range(3))] for i, env in enumerate(toy_envs)]
    alone, together = {}, {row: [] for row in range(4)}
    for row, seen in enumerate(shown):
        actor = HFSampler(chat, sampling)
        actor.begin(0, row)
        alone[row] = [actor.act([0], [each])[0] for each in seen]
    actor = HFSampler(chat, sampling)
    # rows begin late, act in other orders, sit out turns and come back
    for rows in ([0, 1], [1], [2, 0], [0, 1, 2], [3, 2, 1], [3, 0], [2, 3], [3]):
        for row in rows:
            if not together[row]:
                actor.begin(row, row)
        for row, decision in zip(rows, actor.act(rows, [shown[row][len(together[row])] for row in rows])):
            together[row].append(decision)
            if len(together[row]) == 4:
                actor.end(row)
    for row, decisions in together.items():
        assert [d.token_ids.tolist() for d in decisions] == [d.token_ids.tolist() for d in alone[row]]
        for one, other in zip(decisions, alone[row]):
            np.testing.assert_allclose(one.logprobs, other.logprobs, atol=1e-4)


class Shuffled(ToyEnv):
    """Takes a moment of its own for every answer, so that rows come back in another order than they were sent."""

    def step(self, action):
        time.sleep(0.01 * random.random())
        return super().step(action)


@pytest.mark.parametrize("envs", [1, 3])
def test_the_same_seeds_give_the_same_episodes_whatever_the_order_of_answers(chat, envs):
    inline = collect(SPECS, [ToyEnv() for _ in range(4)], HFSampler(chat, SAMPLING))
    shuffled = collect(SPECS, [Shuffled() for _ in range(envs)], HFSampler(chat, SAMPLING), threads=True)
    assert [episode.id for episode in shuffled] == [spec.id for spec in SPECS]
    for a, b in zip(inline, shuffled):
        assert [t.decision.token_ids.tolist() for t in a.turns] == [t.decision.token_ids.tolist() for t in b.turns]
        for one, other in zip(a.turns, b.turns):
            np.testing.assert_allclose(one.decision.logprobs, other.decision.logprobs, atol=1e-4)
            assert one.observation.images["head"].tolist() == other.observation.images["head"].tolist()


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


def test_a_row_that_leaves_takes_its_memory_layer_by_layer():
    layers, cache = 8, KVCache()
    append(cache, blocks(4, 6), layers)
    old = [weakref.ref(part) for layer in cache._layers for part in layer]
    alive = []

    class Watch(TorchDispatchMode):
        def __torch_dispatch__(self, function, types, args=(), kwargs=None):
            alive.append(sum(part() is not None for part in old))
            return function(*args, **(kwargs or {}))

    with Watch():
        cache.select(torch.tensor([3, 1]))
    # two a layer: as the last one is cut, no other old one is left
    assert alive[0] == 2 * layers
    assert alive[-1] == 2


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
