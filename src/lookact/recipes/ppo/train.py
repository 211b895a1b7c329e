"""vqa-ppo: a vision-language model looks around and answers questions about a room, by PPO with a critic.

Imitate an expert that looks around before it answers; then act, credit tokens and turns with a learned critic
(arXiv:1506.02438), and move within a clip of the policy that acted (arXiv:1707.06347), close to where RL began.
"""

from __future__ import annotations

import time
from typing import Any

from lookact.algorithms.rollouts import stop_on_errors
from lookact.algorithms.vlm import open_reference
from lookact.ops.kl import AdaptiveKL
from lookact.recipes.ppo.config import Config
from lookact.recipes.ppo.engine import open_engine
from lookact.recipes.ppo.report import eval_metrics, reward_metrics, rollout_metrics, show_episodes
from lookact.recipes.ppo.runs import (
    collect,
    evaluate,
    finish,
    open_critic,
    open_policy,
    validate,
    warm_start,
    weights_of,
)
from lookact.recipes.ppo.update import objective, open_learners, prepare, reward_parts, set_rates, take_steps
from lookact.rollout.collect import collect as run_plans
from lookact.rollout.episode_specs import make_specs
from lookact.tasks.spatial_vqa import make_env, training_rows
from lookact.training.distributed import rank, world_size
from lookact.training.run import Run

__all__ = ["collect", "evaluate", "main"]


def main(cfg: Config, run: Run) -> dict[str, Any]:
    chat = open_policy(cfg, run.folder / "model")
    before = warm_start(chat, cfg, run)
    critic, reference = open_critic(chat, cfg, run.folder), open_reference(chat, cfg.kl.reference)
    rewards, rows = reward_parts(cfg), training_rows(cfg.world, cfg.seed)
    envs = [make_env(cfg.world, rows) for _ in range(-(-cfg.learn.episodes // world_size()))]
    learners = open_learners(chat, critic, cfg)
    coef = AdaptiveKL(cfg.kl.coef, cfg.kl.target or 1.0, cfg.kl.horizon)
    weights, state = weights_of(chat, critic), {**learners, "kl": coef, "reference": reference}
    run.restore(weights=weights, state=state)
    actor, refresh = open_engine(chat, cfg, run)

    for step in run.steps(cfg.learn.updates, "learning"):
        # look and act
        plans = make_specs(cfg.seed, "train", groups=cfg.learn.episodes, step=step)
        synced = refresh(step - 1)
        began = time.perf_counter()
        episodes = rewards.relabel(run_plans(plans[rank() :: world_size()], envs, actor))
        acted = time.perf_counter()
        metrics = rollout_metrics(episodes) | reward_metrics(episodes) | synced
        stop_on_errors(episodes, metrics["rollout/error_rate"], cfg.max_error_rate)

        # credit
        minibatches, parts = prepare(episodes, chat, critic, reference, cfg, step, coef.coef)
        metrics |= parts

        # learn
        chat.train()
        metrics |= set_rates(learners, cfg, step)
        acting = step > cfg.critic.warmup
        loss_fn = objective(chat, critic, coef.coef, cfg, acting=acting)
        metrics |= take_steps(minibatches, loss_fn, learners, chat, cfg, step, acting=acting)
        if cfg.kl.target is not None and "policy/kl" in metrics:
            metrics["policy/kl_coef"] = coef.update(max(0.0, metrics["policy/kl"]), len(plans))
        learned = time.perf_counter()
        metrics |= {"time/rollout": acted - began, "time/learn": learned - acted}

        # report
        if step % cfg.evaluation.every and step != cfg.learn.updates:
            run.log(metrics, step, show="rollout/score")
            continue
        metrics |= eval_metrics(validate(chat, cfg, run, step)) | {"time/evaluate": time.perf_counter() - learned}
        run.log(metrics, step, show="eval/score")
        run.save(step, weights=weights, state=state, metrics=metrics, best=("eval/score", "max"))
        show_episodes(run.tracker, episodes, step)
    return finish(chat, cfg, run, before)
