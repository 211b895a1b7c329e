"""Checks of vla-ppo before it starts."""

from __future__ import annotations

from pathlib import Path

from lookact.algorithms.vlm_preflight import COPIES
from lookact.errors import ConfigError, DataError
from lookact.models.vlm.sources import TINY, check_source, weight_bytes
from lookact.recipes.vla_ppo.config import Config, EnvConfig
from lookact.training.preflight import Job, need_device, need_files, need_package, need_room, need_same

CHECKPOINT = ("vla.json", "model.safetensors")
"""What every checkpoint holds."""

SHAPES = (
    *(
        f"model.vision.{name}"
        for name in ("image_size", "patch", "hidden", "layers", "pool_queries", "finetune", "lora_rank")
    ),
    *(f"model.text.{name}" for name in ("hidden", "layers", "length", "finetune", "lora_rank")),
    *(f"model.{name}" for name in ("width", "layers", "heads", "value_layers", "history", "action_chunk", "memory")),
    "env.control",
    "env.cameras",
)
"""Settings without which a checkpoint's weights do not fit."""


def preflight(cfg: Config, job: Job) -> None:
    """Refuse what could not work on this machine, before anything is begun."""
    need_package("mujoco", "vla-ppo")
    if cfg.evaluation.videos or job.command != "eval":
        need_package("imageio_ffmpeg", "writing demonstrations and videos", instead="set --evaluation.videos 0")
    if job.command == "collect":
        need_room(job.folder, 0, remedy="free some, or give another --out")
        return
    if job.checkpoint is not None:
        need_files(job.checkpoint, "vla-ppo", CHECKPOINT)
    if job.trains:
        check_training(cfg, job)
    need_device("model.device", cfg.model.device)


def check_training(cfg: Config, job: Job) -> None:
    """Refuse settings that would only fail once behaviour cloning is done."""
    learn, model = cfg.learn, cfg.model
    need_same(cfg, job.resume, SHAPES)
    if cfg.stage != "bc":
        if learn.rollout_steps < cfg.env.max_steps:
            raise ConfigError(
                f"learn.rollout_steps = {learn.rollout_steps}: episodes last up to {cfg.env.max_steps} and none is "
                f"carried on; set it to at least {cfg.env.max_steps}"
            )
        if learn.num_envs % job.processes:
            raise ConfigError(f"learn.num_envs = {learn.num_envs}: give a multiple of the {job.processes} processes")
        if cfg.parallel.kind == "shard" and cfg.ppo.kl_coef > 0:
            raise ConfigError(
                "parallel.kind shard has no whole reference: set --parallel.kind data, or --ppo.kl_coef 0"
            )
    if cfg.stage == "ppo":
        if cfg.checkpoint is None:
            raise ConfigError("stage ppo trains a policy that was cloned: name it with --checkpoint, or use stage both")
        if not Path(cfg.checkpoint).is_dir():
            raise DataError(f"checkpoint {cfg.checkpoint} does not exist: check the path")
        need_files(Path(cfg.checkpoint), "vla-ppo", CHECKPOINT)
    elif cfg.bc.dataset is not None:
        check_demonstrations(Path(cfg.bc.dataset), cfg.env)
    if model.vision.source == TINY and model.vision.image_size % model.vision.patch:
        raise ConfigError(
            f"model.vision.image_size = {model.vision.image_size}: give a multiple of the patch, {model.vision.patch}"
        )
    check_source(model.vision.source, "dinov2", example="facebook/dinov2-base")
    check_source(model.text.source, "bert", example="google-bert/bert-base-uncased", bare=True)
    weights = weight_bytes(model.vision.source) + weight_bytes(model.text.source)
    need_room(job.folder, COPIES * weights, remedy="free some, or give another --out")


def check_demonstrations(folder: Path, env: EnvConfig) -> None:
    """Refuse a LeRobot dataset whose features are not the environment's."""
    from lookact.data.lerobot.read import Wanted, check_features, read_info

    wanted = Wanted(cameras=env.cameras, state_size=env.state_size, action_size=env.action_size)
    check_features(folder, read_info(folder), wanted)
