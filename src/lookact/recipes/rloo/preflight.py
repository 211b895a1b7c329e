"""Checks of nav-rloo before it starts."""

from __future__ import annotations

from lookact.algorithms.vlm_preflight import SHAPES, check_model, check_ray, check_sampling, check_scenes
from lookact.recipes.rloo.config import Config
from lookact.training.preflight import Job, need_same


def preflight(cfg: Config, job: Job) -> None:
    """Refuse what could not work on this machine, before anything is begun."""
    check_scenes("env.scenes", getattr(cfg.env, "scenes", ()))
    check_sampling(cfg.sampling)
    need_same(cfg, job.resume, SHAPES)
    check_ray(cfg.ray, job)
    check_model(cfg.model, job, image_size=cfg.env.image_size)
