"""Who acts in nav-rloo, and with what."""

from __future__ import annotations

from dataclasses import replace
from functools import partial
from pathlib import Path

from lookact.algorithms.rollouts import Rollouts, open_rollouts
from lookact.models.vlm.policy import ChatVLM
from lookact.recipes.rloo.config import Config
from lookact.recipes.rloo.runs import open_policy
from lookact.rollout.episode_specs import make_specs
from lookact.rollout.ray.worker import WorkerContext
from lookact.rollout.samplers.hf import HFSampler
from lookact.tasks.navigation import make_env
from lookact.types import EpisodeSpec


def open_nav_rollouts(chat: ChatVLM, cfg: Config, folder: Path) -> Rollouts:
    """The learner itself, or workers on Ray that read the untrained model from `folder` or by its name."""
    return open_rollouts(
        chat,
        cfg.ray,
        actor=HFSampler(chat, cfg.sampling, system=cfg.instructions),
        make_env=partial(make_env, cfg.world),
        make_context=partial(make_context, anywhere(cfg), folder.resolve()),
        plans_of=partial(plans_of, cfg),
    )


def plans_of(cfg: Config, step: int) -> list[EpisodeSpec]:
    """What a learning step's episodes start from."""
    return make_specs(cfg.seed, "train", groups=cfg.learn.groups, size=cfg.learn.group_size, step=step)


def make_context(cfg: Config, folder: Path) -> WorkerContext:
    """A worker's engine and rooms, built in its own process."""
    chat = open_policy(cfg, folder)
    actor = HFSampler(chat, cfg.sampling, system=cfg.instructions)
    return WorkerContext(actor=actor, envs=[make_env(cfg.world) for _ in range(cfg.ray.chunk)], model=chat.model)


def anywhere(cfg: Config) -> Config:
    """The config as a worker needs it: paths that hold in every folder, on the worker's own device."""
    source = Path(cfg.model.source)
    model = replace(
        cfg.model,
        source=str(source.resolve()) if source.exists() else cfg.model.source,
        device="cuda" if cfg.ray.gpus else "cpu",
    )
    return replace(cfg, model=model)
