"""Checks before a recipe of vision-language models starts: the model, its sampling, and workers on Ray."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from lookact.algorithms.vlm_settings import Model, RaySettings
from lookact.errors import ConfigError, DataError
from lookact.extras import is_installed
from lookact.models.vlm.sources import ADAPTER_FILE, TINY, check_source, weight_bytes
from lookact.rollout.reach import is_reachable
from lookact.rollout.samplers.settings import Sampling
from lookact.training.preflight import Job, need_device, need_package, need_room

PATCH = 32
"""Pixels a side of what becomes one visual token."""
SHAPES = (
    "model.hidden",
    "model.layers",
    "model.vision_hidden",
    "model.vision_depth",
    "model.lora_rank",
)
"""Settings without which a checkpoint's weights do not fit."""
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
    check_source(source, "qwen3_vl")
    if model.quantise == "nf4":
        need_package("bitsandbytes", "model.quantise nf4", instead="set --model.quantise none")
        if job.trains and not model.lora_rank and not Path(source, ADAPTER_FILE).exists():
            raise ConfigError("model.quantise nf4 freezes every weight: set --model.lora_rank 32 to train adapters")
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


def check_ray(ray: RaySettings, job: Job) -> None:
    """Refuse workers that could not be placed: without the package, or on a cluster that is not there."""
    if not job.trains or not ray.workers:
        return
    need_package("ray", f"ray.workers {ray.workers}", instead="set --ray.workers 0")
    if ray.address == "auto":
        # finding it is Ray's own business: joining fails at once where there is none
        from lookact.rollout.ray.pool import join_cluster, leave_cluster

        if join_cluster(ray.address):
            leave_cluster()
    elif ray.address not in ("", "local") and not is_reachable(ray.address):
        raise ConfigError(
            f"no Ray cluster at {ray.address}: start one there with `ray start --head`, or leave --ray.address out"
        )


def check_sampling(sampling: Sampling) -> None:
    """Refuse bounds that no action can keep."""
    fewest, most = sampling.min_action_tokens, sampling.max_action_tokens
    if fewest > most:
        raise ConfigError(f"sampling.min_action_tokens = {fewest}: give at most max_action_tokens, {most}")


def check_scenes(setting: str, folders: Sequence[str]) -> None:
    """Refuse folders that are there, but hold no recorded scene."""
    for folder in folders:
        for part in ("_3dod_mesh.ply", "_3dod_annotation.json"):
            if not any(Path(folder).glob(f"*{part}")):
                raise DataError(f"{setting}: {folder} is no ARKitScenes folder, it has no ID{part}; check the path")
