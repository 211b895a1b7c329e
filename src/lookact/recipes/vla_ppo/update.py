"""Reinforcement in vla-ppo: act in many worlds at once, credit steps with a critic, and move within a clip.

Every update begins with fresh episodes whose seeds are derived from the update's number. What a rollout holds then
depends on the weights alone: a resumed run needs no simulator's state, goes on bit for bit, and a curriculum is a
matter of which starts are planned.
"""

from __future__ import annotations

import time
from functools import lru_cache, partial
from typing import Any

import numpy as np

from lookact.algorithms.control_update import improve, open_learner
from lookact.envs.tabletop.randomise import draw_start
from lookact.envs.vector.pipelined import PipelinedVectorEnv
from lookact.envs.vector.vector_env import PlanEpisode
from lookact.errors import ConfigError
from lookact.models.vla.checkpoint import save_readers
from lookact.models.vla.policy import VLA
from lookact.recipes.vla_ppo.config import Config, Learn, World
from lookact.recipes.vla_ppo.demos import cores
from lookact.recipes.vla_ppo.evaluate import keep_in, measure, metrics_of
from lookact.recipes.vla_ppo.task import table_maker
from lookact.seeding import derive
from lookact.training.distributed import rank, world_size
from lookact.training.kept_episodes import step_name
from lookact.training.optim import set_learning_rate
from lookact.training.run import Run
from lookact.training.sharding import make_whole, share_out_control, whole
from lookact.training.weights import Weights


def reinforce(policy: VLA, cfg: Config, run: Run) -> dict[str, Any]:
    """Improves `policy` by its own successes and failures; it ends as the last update left it."""
    learn, ppo = cfg.learn, cfg.ppo
    if learn.steps < cfg.world.max_steps:
        raise ConfigError(
            f"learn.steps = {learn.steps}: episodes last up to {cfg.world.max_steps}, and none is carried on"
        )
    share_out_control(policy, cfg.parallel, anchored=ppo.kl_coef > 0)
    learner = open_learner(
        policy,
        lr=learn.lr,
        critic_lr=learn.critic_lr,
        normalise_state=learn.normalise_state,
        scale_rewards=learn.scale_rewards,
        anchored=ppo.kl_coef > 0,
    )
    weights: dict[str, Weights] = {"model": policy, "readers": partial(save_readers, policy)}
    state = learner.state()
    run.restore(weights=weights, state=state)
    worlds = open_worlds(cfg.world, learn)
    try:
        for step in run.steps(learn.updates, "reinforcing"):
            # look, act, credit, learn
            policy.set_progress((step - 1) / learn.updates)
            metrics = set_learning_rate(learner.optimizer, step - 1, total=learn.updates, schedule=learn.schedule)
            metrics |= improve(
                learner,
                worlds,
                ppo,
                steps=learn.steps,
                seed=derive(cfg.seed, "update", step),
                plan_episode=plan_update(cfg, step),
                acting=step > learn.critic_warmup,
            )

            # report
            if step % cfg.evaluation.every and step != learn.updates:
                run.log(metrics, step, show="rollout/success_rate")
                continue
            metrics |= evaluate_now(policy, cfg, run, step)
            run.log(metrics, step, show="eval/success_rate")
            run.save(step, weights=weights, state=state, metrics=metrics, best=("eval/success_rate", "max"))
    finally:
        worlds.close()
    make_whole(policy)
    return {"updates": learn.updates, "worker_restarts": worlds.restarts}


def open_worlds(world: World, learn: Learn) -> PipelinedVectorEnv:
    """This process's share of the worlds; a worker that hangs or dies is started again."""
    rows, odd = divmod(learn.rows, world_size())
    if odd or not rows:
        raise ConfigError(f"learn.rows = {learn.rows}: give a multiple of the {world_size()} processes")
    return PipelinedVectorEnv(
        table_maker(world),
        rows,
        workers=learn.workers or max(1, cores() // world_size()),
        step_seconds=learn.step_seconds,
        max_restarts=learn.max_restarts,
    )


def plan_update(cfg: Config, step: int) -> PlanEpisode:
    """The episodes of an update, by their place among all processes' rows."""
    seed, share = derive(cfg.seed, "learn", step), start_share(cfg.learn, step)

    # asked for again in every step until the episode begins
    @lru_cache(maxsize=4 * cfg.learn.rows)
    def plan(row: int, episode: int) -> tuple[int, dict[str, Any]]:
        own = derive(seed, rank() + world_size() * row, episode)
        return own, {} if share == 1.0 else {"start_seed": easy_start(cfg.world, own, round(1 / share))}

    return plan


def start_share(learn: Learn, step: int) -> float:
    """Which share of the starts an update is given: it grows evenly from `easiest` to all."""
    return min(1.0, learn.easiest + (1.0 - learn.easiest) * (step - 1) / learn.easy_updates)


def easy_start(world: World, seed: int, among: int) -> int:
    """The seed of the easiest of so many starts: the way from the tool to the object and on to the target."""
    seeds = [derive(seed, "start", number) for number in range(among)]
    return min(seeds, key=lambda start: _way(world, start))


def _way(world: World, seed: int) -> float:
    start = draw_start(seed, world.task, "none", things=1 + world.distractors)
    spot = start.objects[0][:2]
    return float(np.linalg.norm(start.tool[:2] - spot) + np.linalg.norm(start.targets[0] - spot))


def evaluate_now(policy: VLA, cfg: Config, run: Run, step: int) -> dict[str, float]:
    """Greedy success on scenes of its own, between updates."""
    began = time.perf_counter()
    folder = run.folder / "videos" / f"update-{step}" if cfg.render else None
    how: dict[str, Any] = {"seed": cfg.seed, "split": "validate", "greedy": True, "folder": folder}
    how["keep"] = keep_in(run.folder, step_name(step))
    with whole(policy):
        report = measure(policy, cfg.world, cfg.evaluation, episodes=cfg.evaluation.episodes, **how)
    return metrics_of(report) | {"time/evaluate": time.perf_counter() - began}
