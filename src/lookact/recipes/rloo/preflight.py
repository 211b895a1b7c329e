"""Checks of nav-rloo before it starts."""

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
from lookact.recipes.rloo.config import Config
from lookact.rewards.functions import load_rewards
from lookact.training.preflight import Job, need_same


def preflight(cfg: Config, job: Job) -> None:
    """Refuse what could not work on this machine, before anything is begun."""
    trains = job.trains and not getattr(cfg.env, "train_on_test", False)
    check_scenes("env.scenes", getattr(cfg.env, "scenes", ()), trains=trains)
    check_sampling(cfg.sampling)
    load_rewards(cfg.reward_functions)
    need_same(cfg, job.resume, SHAPES)
    if job.trains and cfg.sampling.greedy:
        raise ConfigError("sampling.greedy makes a group's episodes equal, and leaves no gradient: leave it out")
    check_importance(cfg.importance_sampling)
    check_sampler(cfg.sampler, cfg.sampling, cfg.model, cfg.vllm, cfg.ray, job, parallel=cfg.parallel.kind)
    check_ray(cfg.ray, cfg.model, job)
    check_model(cfg.model, job, image_size=cfg.env.image_size)
