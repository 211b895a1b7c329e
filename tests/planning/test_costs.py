from dataclasses import replace

import numpy as np
import pytest
import torch
from torch.utils.flop_counter import FlopCounterMode

from lookact.models.vlm.loading import load_chat
from lookact.planning.architectures import qwen3_vl
from lookact.planning.costs import (
    Seconds,
    planned_work,
    shape_of,
)


def test_a_share_keeps_what_is_done_one_after_the_other():
    work = planned_work(episodes=8, turns=3, image_tokens=4, text_tokens=9, reply_tokens=5)
    half = work.over(2)
    assert (half.episodes, half.sampled_tokens, half.rounds, half.image_tokens) == (4, 60, 15, 4)


def test_overlap_hides_the_shorter_half():
    step = Seconds(rollout=6.0, environment=1.0, update=3.0, communication=1.0)
    assert (step.total, step.overlapped) == (10.0, 6.0)
    assert replace(step, update=7.0).overlapped == 8.0


def test_the_large_model_has_as_many_parameters_as_its_card_says():
    # 8.77 billion, of which the vision tower has 0.58
    shape = shape_of(qwen3_vl("8B"))
    assert shape.parameters == pytest.approx(8.767e9, rel=2e-3)
    assert shape.vision_weights + shape.merger_weights == pytest.approx(0.576e9, rel=0.01)


def test_a_tiny_model_is_counted_to_within_norms_and_biases(chat):
    shape = shape_of(chat.config)
    matrices = sum(p.numel() for p in chat.model.parameters() if p.dim() > 1)
    assert shape.parameters == matrices


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
