"""Demonstrations that a clone gives itself: its own episodes, the failed ones relabelled in hindsight."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from lookact.data.lerobot.read import Demonstration
from lookact.data.lerobot.write import write_demonstrations
from lookact.envs.tabletop.workers import in_workers, relabel_here
from lookact.models.vla.policy import VLA
from lookact.recipes.vla_ppo import task
from lookact.recipes.vla_ppo.config import Config
from lookact.recipes.vla_ppo.evaluate import run_episodes
from lookact.seeding import derive

log = logging.getLogger(__name__)
SPLIT = "hindsight"
Actions = list[NDArray[np.float32]]


def hindsight_demonstrations(policy: VLA, cfg: Config, folder: Path) -> list[Path]:
    """The policy's own sampled episodes as a dataset below `folder`, unless it is there; none if nothing was moved."""
    out = folder / "hindsight_demos"
    if not out.exists():
        demos = list(_relabelled(cfg, _sampled(policy, cfg)))
        log.info("hindsight: %d of %d episodes became demonstrations", len(demos), cfg.bc.hindsight_episodes)
        if not demos:
            return []
        write_demonstrations(out, demos, fps=cfg.env.rate, robot=task.ROBOT, space=cfg.env.action_space)
    return [out]


def _sampled(policy: VLA, cfg: Config) -> list[tuple[int, Actions]]:
    """Seeds and actions of sampled episodes."""
    count, found = cfg.bc.hindsight_episodes, []
    how: dict[str, Any] = {"seed": cfg.seed, "split": SPLIT, "num_envs": cfg.evaluation.num_envs, "greedy": False}
    results = run_episodes(
        policy,
        cfg.env,
        shift="none",
        episodes=count,
        workers=task.worker_count(cfg.evaluation.workers),
        kept=count,
        **how,
    )
    for result in results:
        actions = [np.asarray(turn.decision.action, np.float32) for turn in result.turns]
        found.append((derive(cfg.seed, SPLIT, "none", result.number), actions))
    return found


def _relabelled(cfg: Config, own: list[tuple[int, Actions]]) -> Iterator[Demonstration]:
    workers = task.worker_count(cfg.bc.workers)
    for episode in in_workers(relabel_here, own, task.table_maker(cfg.env), workers):
        if episode is not None:
            yield task.demonstration(episode, cfg.env.cameras)
