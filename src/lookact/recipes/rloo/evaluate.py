"""nav-rloo's policies: opened, evaluated on held-out starts, and asked for episodes."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

from lookact.algorithms.evaluation import Evaluator, evaluate_task, fill_store
from lookact.algorithms.vlm import open_chat
from lookact.models.vlm.policy import ChatVLM
from lookact.plots.navigation import draw_sheet
from lookact.protocols import Actor
from lookact.recipes.rloo.config import Config
from lookact.rollout.samplers.hf import HFSampler
from lookact.tasks.registry import make_task
from lookact.tasks.settings import NavigationConfig
from lookact.training.evaluation import EPISODES


def open_policy(cfg: Config, folder: Path) -> ChatVLM:
    """The model as it is before any training."""
    task = make_task(cfg.env, cfg.seed)
    return open_chat(cfg.model, folder, corpus=task.corpus, image_size=task.image_size, seed=cfg.seed)


def open_checkpoint(cfg: Config, checkpoint: Path) -> ChatVLM:
    """A policy that was saved, held as the config says."""
    return open_policy(replace(cfg, model=replace(cfg.model, source=str(checkpoint))), checkpoint)


def make_evaluator(cfg: Config, folder: Path) -> Evaluator:
    """For evaluations before, during and after training, which keep a few episodes in the run's folder."""
    task = make_task(cfg.env, cfg.seed)
    return Evaluator(task, cfg.sampling, cfg.instructions, cfg.seed, cfg.evaluation.num_envs, folder)


def evaluate(
    cfg: Config, *, checkpoint: Path | None, episodes: int, greedy: bool, dummy: bool, folder: Path
) -> dict[str, Any]:
    """A checkpoint, or the uniformly random policy, on the test split; its episodes are kept in `folder`."""
    task = make_task(cfg.env, cfg.seed)
    actor: Actor = task.random_actor()
    if not dummy:
        assert checkpoint is not None
        sampling = replace(cfg.sampling, greedy=greedy)
        actor = HFSampler(open_checkpoint(cfg, checkpoint), sampling, system=cfg.instructions)
    report = evaluate_task(
        task, actor, seed=cfg.seed, episodes=episodes, num_envs=cfg.evaluation.num_envs, folder=folder
    )
    if isinstance(cfg.env, NavigationConfig):
        draw_sheet(folder / EPISODES, folder / "sheet.png")
    return report


def collect(cfg: Config, *, checkpoint: Path | None, episodes: int, out: Path) -> dict[str, Any]:
    """Fills `out` up to `episodes` episodes; what is there already is kept and counts."""
    task = make_task(cfg.env, cfg.seed)
    policy = open_policy(cfg, out / "model") if checkpoint is None else open_checkpoint(cfg, checkpoint)
    actor = HFSampler(policy, cfg.sampling, system=cfg.instructions)
    specs = task.specs(cfg.seed, "collect", groups=episodes)
    draw = task.add_floor_map(specs)
    return fill_store(out, specs, task.make_env, actor, num_envs=cfg.evaluation.num_envs, draw=draw)
