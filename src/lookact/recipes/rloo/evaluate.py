"""nav-rloo's policies: opened, evaluated on held-out starts, and asked for episodes."""

from __future__ import annotations

from contextlib import AbstractContextManager, nullcontext
from dataclasses import replace
from pathlib import Path
from typing import Any

from lookact.algorithms.evaluation import Evaluator, evaluate_task, fill_store
from lookact.algorithms.rollouts import open_actor
from lookact.algorithms.vlm import open_chat
from lookact.models.vlm.policy import ChatVLM
from lookact.plots.navigation import draw_sheet
from lookact.protocols import Actor
from lookact.recipes.rloo.config import Config
from lookact.recipes.rloo.learner import limits_of
from lookact.rollout.samplers.settings import Sampling
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
    return Evaluator(task, cfg.sampling, cfg.instructions, cfg.seed, cfg.evaluation.num_envs, folder, cfg.rollout)


def acting(cfg: Config, policy: ChatVLM, sampling: Sampling, folder: Path) -> AbstractContextManager[Actor]:
    """The policy behind the sampler that the config names."""
    how: dict[str, Any] = {"system": cfg.instructions, "vllm": cfg.vllm, "max_logprob_gap": limits_of(cfg).token}
    return open_actor(policy, sampler=cfg.sampler, sampling=sampling, folder=folder / "engine", **how)


def evaluate(
    cfg: Config, *, checkpoint: Path | None, episodes: int, greedy: bool, dummy: bool, folder: Path
) -> dict[str, Any]:
    """A checkpoint, or the uniformly random policy, on the test split; its episodes are kept in `folder`."""
    task = make_task(cfg.env, cfg.seed)
    opened: AbstractContextManager[Actor] = nullcontext(task.random_actor())
    if not dummy:
        assert checkpoint is not None
        opened = acting(cfg, open_checkpoint(cfg, checkpoint), replace(cfg.sampling, greedy=greedy), folder)
    how: dict[str, Any] = {"seed": cfg.seed, "episodes": episodes, "num_envs": cfg.evaluation.num_envs}
    with opened as actor:
        report = evaluate_task(task, actor, folder=folder, **how)
    if isinstance(cfg.env, NavigationConfig):
        draw_sheet(folder / EPISODES, folder / "sheet.png")
    return report


def collect(cfg: Config, *, checkpoint: Path | None, episodes: int, out: Path) -> dict[str, Any]:
    """Fills `out` up to `episodes` episodes; what is there already is kept and counts."""
    task = make_task(cfg.env, cfg.seed)
    policy = open_policy(cfg, out / "model") if checkpoint is None else open_checkpoint(cfg, checkpoint)
    specs = task.specs(cfg.seed, "collect", groups=episodes)
    draw = task.add_floor_map(specs)
    with acting(cfg, policy, cfg.sampling, out) as actor:
        return fill_store(out, specs, task.make_env, actor, num_envs=cfg.evaluation.num_envs, draw=draw)
