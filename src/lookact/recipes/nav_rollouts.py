"""Who acts in nav-rloo, and with what."""

from __future__ import annotations

from dataclasses import replace
from functools import partial
from pathlib import Path

from lookact.models.chat_vlm import ChatVLM
from lookact.recipes.nav_config import Config
from lookact.recipes.nav_runs import open_policy
from lookact.recipes.nav_world import make_env, make_plans
from lookact.recipes.rollouts import Rollouts, open_rollouts
from lookact.rollout.hf_actor import HFActor
from lookact.rollout.ray_worker import Station
from lookact.types import Plan


def open_nav_rollouts(chat: ChatVLM, cfg: Config, folder: Path) -> Rollouts:
    """The learner itself, or workers on Ray that read the untrained model from `folder` or by its name."""
    return open_rollouts(
        chat,
        cfg.ray,
        actor=HFActor(chat, cfg.sampling, system=cfg.instructions),
        make_env=partial(make_env, cfg.world),
        make_station=partial(make_station, anywhere(cfg), folder.resolve()),
        plans_of=partial(plans_of, cfg),
    )


def plans_of(cfg: Config, step: int) -> list[Plan]:
    """What a learning step's episodes start from."""
    return make_plans(cfg.seed, "train", groups=cfg.learn.groups, size=cfg.learn.group_size, step=step)


def make_station(cfg: Config, folder: Path) -> Station:
    """A worker's engine and rooms, built in its own process."""
    chat = open_policy(cfg, folder)
    actor = HFActor(chat, cfg.sampling, system=cfg.instructions)
    return Station(actor=actor, envs=[make_env(cfg.world) for _ in range(cfg.ray.chunk)], model=chat.model)


def anywhere(cfg: Config) -> Config:
    """The config as a worker needs it: paths that hold in every folder, on the worker's own device."""
    source = Path(cfg.model.source)
    model = replace(
        cfg.model,
        source=str(source.resolve()) if source.exists() else cfg.model.source,
        device="cuda" if cfg.ray.gpus else "cpu",
    )
    return replace(cfg, model=model)
