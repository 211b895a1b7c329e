"""Checks of vqa-ppo before it starts."""

from __future__ import annotations

from lookact.algorithms.vlm_preflight import (
    SHAPES,
    check_importance,
    check_model,
    check_ray,
    check_sampler,
    check_sampling,
    check_scenes,
)
from lookact.errors import ConfigError
from lookact.recipes.ppo.config import Config
from lookact.rewards.functions import load_rewards
from lookact.text.answers import QUESTION_TYPES
from lookact.training.preflight import Job, need_same


def preflight(cfg: Config, job: Job) -> None:
    """Refuse what could not work on this machine, before anything is begun."""
    trains = job.trains and not getattr(cfg.env, "train_on_test", False)
    check_scenes("env.scenes", getattr(cfg.env, "scenes", ()), trains=trains)
    check_scenes("evaluation.scenes", cfg.evaluation.scenes)
    check_sampling(cfg.sampling)
    load_rewards(cfg.reward_functions)
    if unknown := sorted(set(getattr(cfg.env, "types", ())) - set(QUESTION_TYPES)):
        raise ConfigError(f"env.types: no question is of type {unknown[0]}; choose from {', '.join(QUESTION_TYPES)}")
    need_same(cfg, job.resume, (*SHAPES, "critic.backbone"))
    check_importance(cfg.importance_sampling)
    check_sampler(cfg.sampler, cfg.sampling, cfg.model, cfg.vllm, cfg.ray, job, parallel=cfg.parallel.kind)
    if cfg.parallel.kind == "shard" and cfg.critic.backbone == "separate":
        raise ConfigError("parallel.kind shard holds one model in parts: set --critic.backbone shared, or kind data")
    check_ray(cfg.ray, cfg.model, job)
    check_model(cfg.model, job, image_size=cfg.env.image_size)
