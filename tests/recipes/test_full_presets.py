"""The presets of real size, but for the model's size, the device and how much is done, take their first steps.

Token recipes: bfloat16, LoRA, activation checkpointing and FlashAttention (its kernels computed by SDPA), through SFT,
rollouts, updates, evaluation, a checkpoint and a resumed run; once with Qwen's own vocabulary, and through vLLM.
Control recipes: pretrained encoders in folders, frames, cameras, processes and judges as `full` has them.
"""

import importlib
import importlib.util
import json
from dataclasses import replace

import pytest
import torch
from safetensors.torch import load_file

from full_presets import make_encoders, smaller, smaller_duel, smaller_pref, smaller_vla
from lookact.algorithms import vlm_preflight
from lookact.cli.recipes import RECIPES, load_settings
from lookact.rollout.samplers.hf import HFSampler
from lookact.rollout.samplers.settings import VllmSpec
from lookact.training.preflight import Job

TOKEN_CASES = [
    ("nav-rloo", "full", "tiny"),
    ("vqa-ppo", "full", "tiny"),
    ("vqa-ppo", "full", "qwen_folder"),
    ("nav-rloo", "2b", "tiny"),
    ("nav-rloo", "4b", "tiny"),
    ("vqa-ppo", "2b", "tiny"),
    ("vqa-ppo", "4b", "tiny"),
]
CONTROL = ("vla-ppo", "pref-sac", "world-duel")
LEARNED_HERE = {"debug", "small", "arm"}
"""Presets that two cores run as they are; records and other tests show them."""


def lines(folder):
    return [json.loads(line) for line in (folder / "metrics.jsonl").read_text().splitlines()]


def module_of(recipe):
    return importlib.import_module(RECIPES[recipe])


def preflight_of(recipe):
    return importlib.import_module(RECIPES[recipe].replace(".train", ".preflight")).preflight


def test_every_preset_of_real_size_is_run_here():
    guarded = {(recipe, preset) for recipe, preset, _ in TOKEN_CASES} | {(recipe, "full") for recipe in CONTROL}
    large = {(recipe, name) for recipe in RECIPES for name in load_settings(recipe).PRESETS} - {
        (recipe, name) for recipe in RECIPES for name in LEARNED_HERE
    }
    assert large == guarded


def take_first_steps(recipe, cfg, train, folder, monkeypatch):
    """A step, a second one by a resumed run, and an evaluation; each is looked at."""
    module = module_of(recipe)
    assert (cfg.model.dtype, cfg.model.attention) == ("bfloat16", "flash_attention_2")
    assert cfg.model.lora_rank > 0
    assert cfg.model.gradient_checkpointing
    # the one check that a CPU can't pass
    monkeypatch.setattr(vlm_preflight, "check_flash_attention", lambda model: None)
    preflight_of(recipe)(cfg, Job("train", folder))
    result = train(module.main, cfg)
    assert {"before", "after"} <= result.keys()
    first = load_file(folder / "run/checkpoint-1/adapter_model.safetensors")
    cfg = replace(cfg, learn=replace(cfg.learn, iterations=2))
    train(module.main, cfg, resume=True)
    told = lines(folder / "run")
    assert [line["step"] for line in told] == [1, 2]
    for line in told:
        assert 0 < line["optim/grad_norm"] < float("inf")
        # rounding, and no more
        assert 0 < line["policy/mismatch_gap_mean"] < 0.05
        assert line["policy/mismatch_outliers"] == 0.0
        assert line["optim/skipped"] == 0
    second = load_file(folder / "run/checkpoint-2/adapter_model.safetensors")
    # adapters are float32 beside a bfloat16 model, and each of them moved
    assert {weight.dtype for weight in second.values()} == {torch.float32}
    assert all(not torch.equal(first[name], weight) for name, weight in second.items())
    (folder / "eval").mkdir()
    assert module.evaluate(
        cfg, checkpoint=folder / "run/best", episodes=2, greedy=True, dummy=False, folder=folder / "eval"
    )
    return told


@pytest.mark.slow
@pytest.mark.parametrize(("recipe", "preset", "model"), TOKEN_CASES)
def test_token_presets_take_their_first_steps(
    recipe, preset, model, request, flash_kernels, train, tmp_path, monkeypatch
):
    source = request.getfixturevalue(model) if model.endswith("folder") else model
    cfg = smaller(load_settings(recipe).PRESETS[preset], source)
    take_first_steps(recipe, cfg, train, tmp_path, monkeypatch)
    assert sum(flash_kernels.calls.values()) > 0


@pytest.mark.vllm
@pytest.mark.slow
@pytest.mark.skipif(importlib.util.find_spec("vllm") is None, reason="vLLM is absent: `make test-vllm` runs this")
@pytest.mark.parametrize("recipe", ["nav-rloo", "vqa-ppo"])
def test_full_takes_its_first_steps_through_vllm(recipe, flash_kernels, train, tmp_path, monkeypatch):
    engine = VllmSpec(max_num_seqs=8, kv_cache_memory=0.25)
    cfg = replace(smaller(load_settings(recipe).PRESETS["full"], "tiny"), sampler="vllm", vllm=engine)
    # nobody else acts: not before RL, while training, in an evaluation or in a collection
    monkeypatch.delattr(HFSampler, "act")
    told = take_first_steps(recipe, cfg, train, tmp_path, monkeypatch)
    assert all(line["policy/sync_gap"] < 0.5 for line in told)
    assert told[1]["policy/sync_changed"] == 1.0
    counts = module_of(recipe).collect(cfg, checkpoint=tmp_path / "run/best", episodes=2, out=tmp_path / "episodes")
    assert counts["episodes"] == 2
    assert not (tmp_path / "episodes/engine").exists()


def resumed(recipe, cfg, longer, train, folder):
    """A run, and `longer` from its checkpoint on; the lines of both."""
    module = module_of(recipe)
    preflight_of(recipe)(cfg, Job("train", folder))
    train(module.main, cfg)
    # what a run that goes on from a checkpoint logs is the later steps alone
    done = len(lines(folder / "run"))
    train(module.main, longer, resume=True)
    told = lines(folder / "run")
    assert [line["step"] for line in told] == list(range(1, len(told) + 1))
    assert len(told) == done + 1
    (folder / "eval").mkdir()
    checkpoint = folder / f"run/checkpoint-{len(told)}"
    assert module.evaluate(longer, checkpoint=checkpoint, episodes=1, greedy=True, dummy=False, folder=folder / "eval")
    return told


def moved(folder, one, two, file="model.safetensors"):
    """The first parts of the names of the weights that differ between two checkpoints of a run."""
    before, after = (load_file(folder / "run" / f"checkpoint-{step}" / file) for step in (one, two))
    return {name.split(".")[0] for name in before if not torch.equal(before[name], after[name])}


@pytest.mark.slow
def test_vla_ppo_full_takes_its_first_steps(train, tmp_path):
    cfg = smaller_vla(load_settings("vla-ppo").PRESETS["full"], *make_encoders(tmp_path))
    assert (cfg.model.vision.finetune, cfg.model.text.finetune) == ("lora", "frozen")
    assert cfg.env.image_size == cfg.model.vision.image_size == 224
    longer = replace(cfg, learn=replace(cfg.learn, iterations=2))
    told = resumed("vla-ppo", cfg, longer, train, tmp_path)
    assert all(0 < line["optim/grad_norm"] < float("inf") for line in told)
    # adapters of the vision encoder among them, the text encoder not
    assert moved(tmp_path, 1, 2) >= {"vision_encoder", "fusion", "head", "critic"}
    assert "text_encoder" not in moved(tmp_path, 1, 2)


@pytest.mark.slow
def test_pref_sac_full_takes_its_first_steps(train, tmp_path, serve_apart, free_port):
    serve_apart(free_port)
    cfg = smaller_pref(load_settings("pref-sac").PRESETS["full"], f"http://127.0.0.1:{free_port}")
    assert (cfg.judge.kind, cfg.judge.client.variant) == ("server", "two_step")
    assert (cfg.reward_model.inputs, cfg.env.judge_image_size) == ("frame", 300)
    longer = replace(cfg, learn=replace(cfg.learn, episodes=4))
    told = resumed("pref-sac", cfg, longer, train, tmp_path)
    # pairs are judged after the second episode; SAC learns in all but the first, random one
    assert [line.get("judge/pairs") for line in told] == [None, 6.0, 12.0, None]
    assert ["loss/critic" in line for line in told] == [False, True, True, True]


@pytest.mark.slow
def test_world_duel_full_takes_its_first_steps(train, tmp_path):
    _, bert = make_encoders(tmp_path)
    cfg = smaller_duel(load_settings("world-duel").PRESETS["full"], bert)
    assert (cfg.env.image_size, cfg.tokenizer.scales, cfg.model.memory_layers) == (128, (1, 2, 4, 8, 16), 4)
    longer = replace(cfg, adversarial=replace(cfg.adversarial, iterations=2))
    told = resumed("world-duel", cfg, longer, train, tmp_path)
    assert all(0 < line["optim/grad_norm"] < float("inf") for line in told)
    assert {"loss/world_model", "loss/policy"} <= told[-1].keys()
    assert moved(tmp_path, 3, 4)
    assert moved(tmp_path, 3, 4, "student/model.safetensors")
