"""nav-rloo's policies: opened, evaluated on held-out starts, and asked for episodes."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

from lookact.algorithms.evaluation import Evaluator, fill_store, run_split
from lookact.algorithms.vlm import open_chat
from lookact.models.vlm.policy import ChatVLM
from lookact.plots.navigation import draw_sheet
from lookact.protocols import Actor
from lookact.recipes.rloo.config import Config
from lookact.rollout.samplers.hf import HFSampler
from lookact.tasks.navigation import NavigationTask
from lookact.training.evaluation import EPISODES, EVALUATION_KEPT, keep_episodes


def open_policy(cfg: Config, folder: Path) -> ChatVLM:
    """The model as it is before any training."""
    task = NavigationTask(cfg.env)
    return open_chat(cfg.model, folder, corpus=task.corpus, image_size=task.image_size, seed=cfg.seed)


def open_checkpoint(cfg: Config, checkpoint: Path) -> ChatVLM:
    """A policy that was saved, held as the config says."""
    return open_policy(replace(cfg, model=replace(cfg.model, source=str(checkpoint))), checkpoint)


def make_evaluator(cfg: Config, folder: Path) -> Evaluator:
    """For evaluations before, during and after training, which keep a few episodes in the run's folder."""
    return Evaluator(NavigationTask(cfg.env), cfg.sampling, cfg.instructions, cfg.seed, cfg.evaluation.num_envs, folder)


def evaluate(
    cfg: Config, *, checkpoint: Path | None, episodes: int, greedy: bool, dummy: bool, folder: Path
) -> dict[str, Any]:
    """A checkpoint, or the uniformly random policy, on the test split; its episodes are kept in `folder`."""
    task = NavigationTask(cfg.env)
    actor: Actor = task.random_actor()
    if not dummy:
        assert checkpoint is not None
        sampling = replace(cfg.sampling, greedy=greedy)
        actor = HFSampler(open_checkpoint(cfg, checkpoint), sampling, system=cfg.instructions)
    specs = task.specs(cfg.seed, "test", groups=episodes)
    ended = run_split(specs, task.make_env, actor, num_envs=cfg.evaluation.num_envs)
    keep_episodes(folder / EPISODES, map(task.add_floor_map(specs), ended), most=EVALUATION_KEPT)
    draw_sheet(folder / EPISODES, folder / "sheet.png")
    return task.report(ended)


def collect(cfg: Config, *, checkpoint: Path | None, episodes: int, out: Path) -> dict[str, Any]:
    """Fills `out` up to `episodes` episodes; what is there already is kept and counts."""
    task = NavigationTask(cfg.env)
    policy = open_policy(cfg, out / "model") if checkpoint is None else open_checkpoint(cfg, checkpoint)
    actor = HFSampler(policy, cfg.sampling, system=cfg.instructions)
    specs = task.specs(cfg.seed, "collect", groups=episodes)
    draw = task.add_floor_map(specs)
    return fill_store(out, specs, task.make_env, actor, num_envs=cfg.evaluation.num_envs, draw=draw)
