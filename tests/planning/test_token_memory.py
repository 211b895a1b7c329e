"""Planned memory beside what torch's allocator counts in real steps of the same model."""

import gc
from dataclasses import replace

import numpy as np
import pytest
import torch

from benchmarks.plan_memory import (
    case_words,
    highest_held,
    measured_apart,
    measured_peak,
    planned_peak,
    step_from,
    step_of,
)
from lookact.algorithms.vlm_settings import Model
from lookact.models.vlm.loading import load_chat
from lookact.models.vlm.tiny import TinySpec, make_tiny
from lookact.planning.architectures import qwen3_vl
from lookact.planning.token_memory import TokenStep, stages_at, token_memory
from lookact.rollout.samplers.hf import HFSampler
from lookact.rollout.samplers.settings import Sampling
from lookact.types import Observation


def shallow(**settings):
    step = step_of("1 M", processes=1, **settings)
    step.config.text_config.num_hidden_layers, step.config.vision_config.depth = 4, 3
    return step


@pytest.mark.parametrize(
    ("dtype", "lora", "checkpointing"),
    [("float32", 0, True), ("float32", 16, False), ("bfloat16", 16, True)],
)
def test_a_step_is_planned_as_it_is_measured(dtype, lora, checkpointing):
    step = shallow(dtype=dtype, lora=lora, checkpointing=checkpointing)
    assert planned_peak(step) == pytest.approx(measured_peak(step), rel=0.1)


def test_garbage_of_before_is_not_taken_off_what_is_measured():
    ring = [torch.zeros(1000, 1000)]
    ring.append(ring)
    del ring

    def work():
        made = torch.zeros(250_000)
        gc.collect()
        torch.ones_like(made)

    assert highest_held(work) == 2e6


@pytest.mark.slow
def test_alike_layers_are_run_once():
    step = step_of("1 M", dtype="float32", lora=8, checkpointing=True, processes=1)
    step.config.text_config.num_hidden_layers, step.config.vision_config.depth = 9, 6
    step.config.vision_config.deepstack_visual_indexes = [1, 3, 5]
    step = replace(step, rows=3, eval_rows=2)
    short, whole = token_memory(step), stages_at(step, 9, 6)
    assert list(short) == list(whole)
    for stage, sizes in whole.items():
        assert sum(short[stage].values()) == pytest.approx(sum(sizes.values()), rel=0.01), stage


@pytest.mark.slow
def test_two_shards_are_planned_as_they_are_measured():
    case = {"size": "1 M", "dtype": "float32", "lora": 0, "ckpt": 1, "processes": 2}
    found = measured_apart(case_words(case), processes=2)
    assert planned_peak(step_from(case)) == pytest.approx(found["measured"], rel=0.1)


def test_a_rollout_is_planned_as_it_is_measured(tmp_path):
    # many layers, as buffers grow one layer at a time
    spec = TinySpec(layers=8)
    chat = load_chat(make_tiny(tmp_path / "model", corpus=["Find the bed."], spec=spec))
    # small pictures, since preparing them takes memory of the host and not of the GPU
    rows, turns, reply, side = 8, 4, 40, 32
    sampling = Sampling(max_tokens=reply, min_action_tokens=1)
    chat.banned[chat.end_id] = True
    seen = Observation(text="Find the bed.", images={"camera": np.zeros((side, side, 3), np.uint8)})
    sampler = HFSampler(chat, sampling)
    for row in range(rows):
        sampler.begin(row, row)
    decisions = []
    peak = highest_held(lambda: decisions.extend(sampler.act(range(rows), [seen] * rows)[0] for _ in range(turns)))
    text = round(np.mean([len(decision.prompt_ids) for decision in decisions])) - 1
    step = TokenStep(
        model=Model(),
        config=chat.config,
        sampling=sampling,
        image_size=side,
        turns=turns,
        text_tokens=text,
        reply_tokens=reply,
        rows=rows,
        eval_rows=0,
        token_budget=64,
        learns=False,
    )
    # nobody leaves this batch
    stages = {name: sizes for name, sizes in token_memory(step).items() if not name.endswith("rows end")}
    planned = max(sum(sizes.values()) - sizes["weights"] for sizes in stages.values())
    assert planned == pytest.approx(peak, rel=0.1)


def test_the_published_models_have_as_many_parameters_as_their_cards_say():
    for size, billions in (("2B", 2.13), ("4B", 4.44), ("8B", 8.77)):
        step = TokenStep(
            model=Model(dtype="bfloat16"),
            config=qwen3_vl(size),
            sampling=Sampling(),
            image_size=448,
            turns=1,
            text_tokens=8,
            reply_tokens=8,
            rows=0,
            eval_rows=0,
            token_budget=64,
            learns=False,
        )
        assert token_memory(step)["load"]["weights"] / 2e9 == pytest.approx(billions, abs=0.005)


@pytest.mark.slow
def test_shards_divide_what_is_held():
    step = step_of("1 M", dtype="float32", lora=0, checkpointing=True, processes=4)
    whole = stages_at(replace(step, sharded=False), 5, 4)["update: optimizer"]
    parts = stages_at(step, 5, 4)["update: optimizer"]
    for kind in ("weights", "gradients", "optimizer"):
        assert parts[kind] == pytest.approx(whole[kind] / 4, rel=0.02), kind


def test_nothing_real_is_made():
    step = step_of("1 M", dtype="float32", lora=8, checkpointing=True, processes=1)
    step = replace(step, config=qwen3_vl("8B"), rows=64, reference="none")
    stages = {}
    peak = highest_held(lambda: stages.update(stages_at(step, 4, 3)))
    assert max(sum(sizes.values()) for sizes in stages.values()) > 5e9 > 100 * peak
    assert torch.get_default_dtype() == torch.float32
