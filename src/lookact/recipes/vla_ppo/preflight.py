"""Checks of vla-ppo before it starts."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from lookact.algorithms.vlm_preflight import COPIES
from lookact.errors import ConfigError, DataError
from lookact.models.vlm.sources import TINY, check_source, weight_bytes
from lookact.recipes.vla_ppo.config import BC, Config, EnvConfig
from lookact.training.preflight import Job, need_device, need_files, need_package, need_room, need_same

if TYPE_CHECKING:
    from lookact.data.lerobot.read import Wanted

CHECKPOINT = ("vla.json", "model.safetensors")
"""What every checkpoint holds."""

SHAPES = (
    *(
        f"model.vision.{name}"
        for name in ("image_size", "patch", "hidden", "layers", "pool_queries", "finetune", "lora_rank")
    ),
    *(f"model.text.{name}" for name in ("hidden", "layers", "length", "finetune", "lora_rank")),
    *(f"model.{name}" for name in ("width", "layers", "heads", "value_layers", "history", "action_chunk", "memory")),
    "model.asymmetric_critic",
    *(f"model.{name}" for name in ("action_head", "flow_noise")),
    "env.control",
    "env.cameras",
)
"""Settings without which a checkpoint's weights do not fit."""


def preflight(cfg: Config, job: Job) -> None:
    """Refuse what could not work on this machine, before anything is begun."""
    if cfg.env.is_tabletop:
        need_package("mujoco", "vla-ppo")
        if cfg.env.object_kind == "long" and cfg.env.control == "ee_delta":
            raise ConfigError("env.object_kind = long: a hand must turn to hold them, set --env.control ee_delta_yaw")
    else:
        check_outside(cfg)
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
    if cfg.stage == "ppo" and (cfg.env.is_tabletop or cfg.checkpoint is not None):
        if cfg.checkpoint is None:
            raise ConfigError("stage ppo trains a policy that was cloned: name it with --checkpoint, or use stage both")
        if not Path(cfg.checkpoint).is_dir():
            raise DataError(f"checkpoint {cfg.checkpoint} does not exist: check the path")
        need_files(Path(cfg.checkpoint), "vla-ppo", CHECKPOINT)
    elif cfg.bc.dataset is not None:
        check_demonstrations(Path(cfg.bc.dataset), cfg.env, cfg.bc)
    if model.vision.source == TINY and model.vision.image_size % model.vision.patch:
        raise ConfigError(
            f"model.vision.image_size = {model.vision.image_size}: give a multiple of the patch, {model.vision.patch}"
        )
    check_source(model.vision.source, "dinov2", example="facebook/dinov2-base")
    check_source(model.text.source, "bert", example="google-bert/bert-base-uncased", bare=True)
    weights = weight_bytes(model.vision.source) + weight_bytes(model.text.source)
    need_room(job.folder, COPIES * weights, remedy="free some, or give another --out")


def check_outside(cfg: Config) -> None:
    """Refuse another's environment that does not run, and what only the tabletop has."""
    _ = cfg.env.shapes
    if cfg.stage == "bc" and cfg.bc.dataset is None and not cfg.env.has_expert:
        raise ConfigError(
            f"{cfg.env.task} has no expert to clone: give --bc.dataset a LeRobot folder, or use stage ppo"
        )
    if cfg.learn.curriculum_start_fraction < 1:
        raise ConfigError(f"{cfg.env.task} has no easy starts: set --learn.curriculum_start_fraction 1")


def check_demonstrations(folder: Path, env: EnvConfig, bc: BC) -> None:
    """Refuse a LeRobot dataset whose features or actions are not the environment's."""
    from lookact.data.lerobot.action_space import action_bounds, check_action_space
    from lookact.data.lerobot.read import check_features, read_info

    check_features(folder, read_info(folder), wanted_features(env, bc.rename))
    action_bounds(folder, bc.action_bounds)
    if env.action_space is not None:
        check_action_space(folder, env.action_space)


def wanted_features(env: EnvConfig, rename: Sequence[str]) -> Wanted:
    """What a LeRobot dataset must have; `rename` gives its cameras the environment's names."""
    from lookact.data.lerobot.read import Wanted

    pairs = [word.partition("=") for word in rename]
    if odd := [name + sign + own for name, sign, own in pairs if not (name and own)]:
        raise ConfigError(f"bc.rename = {odd[0]}: give the dataset's name and the environment's, as in top=head")
    shapes, renames = env.shapes, {name: own for name, _, own in pairs}
    return Wanted(shapes.cameras, shapes.state_size, shapes.action_size, renames=renames)
