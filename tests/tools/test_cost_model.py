import re
from pathlib import Path

import pytest
import torch

from cost_model import (
    H100,
    Setup,
    activation_bytes,
    communication_seconds,
    held_bytes,
    peak_bytes,
    predict,
    sampler_bytes,
    trained_parameters,
)
from lookact.models.vlm.loading import LoraSpec, load_chat
from lookact.planning.costs import QWEN3_VL_8B, planned_work, shape_of
from lookact.rollout.samplers.hf import KVCache
from lookact.training.optim import build_adamw

PAGE = Path(__file__).parents[2] / "docs/scaling.md"
ROWS = (
    ("1, LoRA", 32, Setup(lora_rank=32)),
    ("8, LoRA, taking turns", 128, Setup(lora_rank=32, learners=8)),
    ("8, LoRA, 3 learn and 5 act ahead", 128, Setup(lora_rank=32, learners=3, samplers=5)),
    ("8, all weights in shards, taking turns", 128, Setup(kind="shard", learners=8)),
    ("64, LoRA, taking turns", 128, Setup(lora_rank=32, learners=64)),
    ("64, LoRA, 24 learn and 40 act ahead", 1024, Setup(lora_rank=32, learners=24, samplers=40)),
    ("64, all weights in shards, 24 learn and 40 act ahead", 1024, Setup(kind="shard", learners=24, samplers=40)),
)


def step_of(episodes):
    return planned_work(episodes=episodes, turns=10, image_tokens=196, text_tokens=40, reply_tokens=80)


def row(name, episodes, setup):
    work = step_of(episodes)
    seconds = predict(QWEN3_VL_8B, setup, H100, work, env_seconds=0.083)
    held = f"{peak_bytes(held_bytes(QWEN3_VL_8B, setup, work)) / 1e9:.0f} GB"
    held += f", {sampler_bytes(QWEN3_VL_8B, setup, work) / 1e9:.0f} GB" if setup.samplers else ""
    step = seconds.overlapped if setup.samplers else seconds.total
    return (
        f"| {name} | {episodes} | {held} | {seconds.rollout:.0f} s ({seconds.environment:.0f} s) "
        f"| {seconds.update:.0f} s | {seconds.communication:.1f} s | {step:.0f} s | {episodes / step:.1f} |"
    )


def test_the_page_tells_what_the_model_says():
    text = PAGE.read_text(encoding="utf-8")
    missing = [told for told in (row(*one) for one in ROWS) if told not in text]
    assert not missing, "rows to put into the page:\n" + "\n".join(missing)


def test_the_page_tells_the_memory_that_the_model_says():
    table = PAGE.read_text(encoding="utf-8").split("## Memory")[1].split("\n## ")[0]
    setups = ((Setup(), 32), (Setup(lora_rank=32), 32), (Setup(kind="shard", learners=8), 128))
    held = [held_bytes(QWEN3_VL_8B, setup, step_of(episodes)) for setup, episodes in setups]
    for name in held[0]:
        (line,) = re.findall(rf"^\| {name}[^|]*\| (.*) \|$", table, re.MULTILINE)
        assert line == " | ".join(f"{one[name] / 1e9:.1f}" for one in held)
    assert peak_bytes(held[0]) > H100.memory > peak_bytes(held[2]) > peak_bytes(held[1])


@pytest.mark.parametrize("rank", [0, 4])
def test_what_is_held_is_what_a_real_model_and_optimiser_hold(tiny_folder, rank):
    chat = load_chat(tiny_folder, lora=LoraSpec(rank=rank) if rank else None)
    optimizer = build_adamw({"policy": chat}, lr=1e-3)
    for parameter in chat.parameters():
        parameter.grad = torch.ones_like(parameter) if parameter.requires_grad else None
    optimizer.step()
    moments = sum(t.nbytes for state in optimizer.state.values() for t in state.values() if t.dim())
    gradients = sum(p.grad.nbytes for p in chat.parameters() if p.grad is not None)
    shape, setup = shape_of(chat.config), Setup(lora_rank=rank)
    held = held_bytes(shape, setup, planned_work(episodes=1, turns=1, image_tokens=1, text_tokens=1, reply_tokens=1))
    # norms and biases are not counted: some percent of a tiny model; adapters sit on the vision encoder too
    assert held["gradients"] == pytest.approx(gradients, rel=0.05)
    assert held["optimizer"] == pytest.approx(moments, rel=0.05)
    assert trained_parameters(shape, setup) * 4 == held["gradients"]


def test_keys_and_values_are_what_the_cache_holds(chat):
    shape, cache, tokens = shape_of(chat.config), KVCache(), 7
    for layer in range(shape.layers):
        block = torch.zeros(1, shape.kv_heads, tokens, shape.head_dim)
        keys, values = cache.update(block, block, layer)
    assert shape.layers * (keys.nelement() + values.nelement()) * 4 == shape.cache_bytes(tokens, 4)


def test_more_gpus_share_the_work_but_not_the_decode_steps():
    work = step_of(128)
    one, eight = (predict(QWEN3_VL_8B, Setup(lora_rank=32, learners=n), H100, work, env_seconds=0.0) for n in (1, 8))
    assert eight.update == pytest.approx(one.update / 8)
    assert one.rollout / 8 < eight.rollout < one.rollout
    assert eight.total < one.total


def test_shards_hold_less_and_communicate_more():
    work, whole, parts = step_of(128), Setup(learners=8), Setup(kind="shard", learners=8)
    for name in ("weights", "gradients", "optimizer", "reference"):
        held = (held_bytes(QWEN3_VL_8B, setup, work)[name] for setup in (whole, parts))
        assert next(held) == pytest.approx(8 * next(held))
    own = work.over(8)
    assert (
        communication_seconds(QWEN3_VL_8B, parts, H100, own) > communication_seconds(QWEN3_VL_8B, whole, H100, own) > 0
    )
    assert communication_seconds(QWEN3_VL_8B, Setup(), H100, work) == 0


def test_activations_grow_with_the_micro_batch():
    assert activation_bytes(QWEN3_VL_8B, 2000) == pytest.approx(2 * activation_bytes(QWEN3_VL_8B, 1000))
