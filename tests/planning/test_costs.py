from dataclasses import replace

import numpy as np
import pytest
import torch
from torch.utils.flop_counter import FlopCounterMode

from lookact.models.vlm.loading import LoraSpec, load_chat
from lookact.planning.costs import (
    QWEN3_VL_8B,
    Measured,
    Rates,
    Seconds,
    fit_rates,
    measured_work,
    pairs_of,
    planned_work,
    rollout_seconds,
    shape_of,
    update_seconds,
)
from lookact.rollout.collect import collect
from lookact.rollout.samplers.hf import HFSampler
from lookact.rollout.samplers.settings import Sampling
from lookact.types import EpisodeSpec, Observation


class Corridor:
    """Three turns of one picture each."""

    def reset(self, *, seed, options):
        self.turn = 0
        return self.look(), {}

    def step(self, action):
        self.turn += 1
        return self.look(), 0.0, False, self.turn == 3, {}

    def look(self):
        return Observation(text="Find the bed.", images={"camera": np.zeros((64, 64, 3), np.uint8)})

    def close(self):
        pass


def test_pairs_by_hand():
    # two tokens after three: the first looks at 3 + 1, the second at 3 + 2
    assert pairs_of(2, 3) == 9


def test_a_plan_of_equal_turns_by_hand():
    work = planned_work(episodes=2, turns=2, image_tokens=4, text_tokens=1, reply_tokens=2)
    assert (work.env_steps, work.images, work.prompt_tokens, work.sampled_tokens, work.rounds) == (4, 4, 20, 8, 4)
    first, second = pairs_of(5, 0), pairs_of(5, 7)
    assert work.prompt_pairs == 2 * (first + second)
    assert work.sampled_pairs == 2 * (pairs_of(2, 5) + pairs_of(2, 12))


def test_a_real_rollout_does_what_was_planned(chat):
    specs = [EpisodeSpec(id=str(i), group=i, seed=i) for i in range(4)]
    sampling = Sampling(max_tokens=5, min_action_tokens=1)
    # the end of a reply is never drawn: every reply has the full length
    chat.banned[chat.end_id] = True
    episodes = collect(specs, [Corridor() for _ in specs], HFSampler(chat, sampling))
    done = measured_work(episodes, image_tokens=4)
    assert (done.episodes, done.env_steps, done.images, done.sampled_tokens, done.rounds) == (4, 12, 12, 60, 15)
    text = [len(turn.decision.prompt_ids) - 4 for turn in episodes[0].turns]
    assert done.prompt_tokens == 4 * (sum(text) + 12)
    planned = planned_work(episodes=4, turns=3, image_tokens=4, text_tokens=sum(text) / 3, reply_tokens=5)
    assert planned.prompt_tokens == pytest.approx(done.prompt_tokens)
    # the opening is longer than the turns after it: pairs agree nearly, not wholly
    assert planned.prompt_pairs == pytest.approx(done.prompt_pairs, rel=0.1)
    assert planned.sampled_pairs == pytest.approx(done.sampled_pairs, rel=0.1)


def test_a_share_keeps_what_is_done_one_after_the_other():
    work = planned_work(episodes=8, turns=3, image_tokens=4, text_tokens=9, reply_tokens=5)
    half = work.over(2)
    assert (half.episodes, half.sampled_tokens, half.rounds, half.image_tokens) == (4, 60, 15, 4)


def test_overlap_hides_the_shorter_half():
    step = Seconds(rollout=6.0, environment=1.0, update=3.0, communication=1.0)
    assert (step.total, step.overlapped) == (10.0, 6.0)
    assert replace(step, update=7.0).overlapped == 8.0


def test_rates_are_found_again_from_what_they_would_take(chat):
    shape = shape_of(chat.config)
    rates = Rates(prefill=4e9, decode=1e9, decode_step_seconds=2e-3, update=6e9, env_seconds=1e-3)
    sizes = [(2, 3, 5), (8, 3, 5), (8, 6, 12), (32, 4, 3)]
    works = [planned_work(episodes=e, turns=t, image_tokens=9, text_tokens=12, reply_tokens=r) for e, t, r in sizes]
    runs = [Measured(w, rollout_seconds(shape, w, rates), update_seconds(shape, w, rates)) for w in works]
    found = fit_rates(shape, runs, env_seconds=1e-3)
    assert found.prefill == pytest.approx(rates.prefill, rel=1e-6)
    assert found.decode == pytest.approx(rates.decode, rel=1e-6)
    assert found.decode_step_seconds == pytest.approx(rates.decode_step_seconds, rel=1e-6)
    assert found.update == pytest.approx(rates.update, rel=1e-6)


def test_the_large_model_has_as_many_parameters_as_its_card_says():
    # 8.77 billion, of which the vision tower has 0.58
    assert QWEN3_VL_8B.parameters == pytest.approx(8.767e9, rel=2e-3)
    assert QWEN3_VL_8B.vision_weights + QWEN3_VL_8B.merger_weights == pytest.approx(0.576e9, rel=0.01)


def test_a_tiny_model_is_counted_to_within_norms_and_biases(chat):
    shape = shape_of(chat.config)
    matrices = sum(p.numel() for p in chat.model.parameters() if p.dim() > 1)
    assert shape.parameters == matrices


@pytest.mark.slow
def test_adapters_are_counted_exactly(tiny_folder):
    chat = load_chat(tiny_folder, lora=LoraSpec(rank=4))
    text = sum(p.numel() for name, p in chat.named_parameters() if p.requires_grad and "language_model" in name)
    assert shape_of(chat.config).adapter_parameters(4) == text


def flops_of(work):
    with FlopCounterMode(display=False) as counter:
        work()
    return counter.get_total_flops()


@pytest.fixture(scope="module")
def eager(tiny_folder):
    """The stock layers with attention as plain matrix products, of which the counter sees every one."""
    return load_chat(tiny_folder, attention="eager")


def test_text_flops_are_those_of_the_matrix_products(eager):
    shape, (b, n) = shape_of(eager.config), (3, 40)
    ids, places = torch.randint(20, 300, (b, n)), torch.arange(n).expand(3, b, n)
    with torch.no_grad():
        counted = flops_of(lambda: eager.backbone(ids, torch.ones(b, n, dtype=torch.bool), places))
    # plain products are made for every pair, also those that the causal mask then hides
    assert counted == shape.text_flops(b * n, b * n * n)


def test_vision_flops_are_those_of_the_matrix_products(eager):
    shape, tower = shape_of(eager.config), eager.causal.model.visual
    pixels, grids = eager.encode_images([np.full((64, 64, 3), i, np.uint8) for i in range(3)])
    tokens = eager.image_token_counts(grids)[0]
    with torch.no_grad():
        counted = flops_of(lambda: tower(pixels, grid_thw=grids))
    assert counted == pytest.approx(shape.vision_flops(3, tokens), rel=1e-6)
