"""RLOO for multi-turn vision-language policies: REINFORCE with a leave-one-out baseline (arXiv:2402.14740).

SFT on an expert's demonstrations; then in each iteration `group_size` episodes from each of `groups` starts, advantages
against the others of the group, and one or more passes of the clipped policy gradient over the sampled tokens.
As recipe nav-rloo it learns the task "navigation".
"""

from __future__ import annotations

import logging
import math
import time
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
from torch import Tensor

from lookact.algorithms.evaluation import Evaluator, reward_metrics
from lookact.algorithms.group_advantages import (
    BASELINES,
    anchor_advantages,
    drop_zero_variance_groups,
    episode_advantages,
    pack,
    scale_advantages,
    turn_advantages,
)
from lookact.algorithms.rollouts import (
    Rollouts,
    open_rollouts,
    staleness_of,
    stop_on_errors,
    worker_context,
    worker_model,
)
from lookact.algorithms.sft import supervised_start
from lookact.batch import Batch, Scores, TokenInputs
from lookact.data.packing import micro_batches
from lookact.models.vlm.policy import ChatVLM
from lookact.ops.kl import k1, k2, k3, kl_loss
from lookact.ops.masked import Metrics
from lookact.ops.mismatch import logprob_gap
from lookact.ops.policy_loss import aggregation_weights, cispo, entropy_bonus, gspo, ppo_clip
from lookact.protocols import Task
from lookact.recipes.rloo.config import KL, Config, Learn
from lookact.recipes.rloo.evaluate import collect, evaluate, make_evaluator, open_policy
from lookact.recipes.rloo.learner import Learner, follow_reference, make_learner
from lookact.rewards.functions import load_rewards
from lookact.rollout.samplers.hf import HFSampler
from lookact.tasks.registry import make_task
from lookact.training.distributed import sum_gradients
from lookact.training.evaluation import rollout_metrics, show_episodes
from lookact.training.optim import (
    WeightedSum,
    clip_and_step,
    set_learning_rate,
    weighted,
)
from lookact.training.run import Run

__all__ = ["collect", "evaluate", "main"]

logger = logging.getLogger(__name__)
ESTIMATORS = {"k1": k1, "k2": k2, "k3": k3}
LOSSES = {"ppo": ppo_clip, "gspo": gspo, "cispo": cispo}
CREDIT: dict[str, Any] = {
    "episode": lambda episodes, *, gamma, baseline: episode_advantages(episodes, baseline),
    "turn": turn_advantages,
    "anchor": anchor_advantages,
}


def main(cfg: Config, run: Run) -> dict[str, Any]:
    """SFT, RLOO, and the reports before and after it."""
    task, final = make_task(cfg.env, cfg.seed), cfg.evaluation.final_episodes
    policy, evaluator = open_policy(cfg, run.folder / "model"), make_evaluator(cfg, run.folder)
    start = supervised_start(
        policy,
        task,
        run,
        vision=cfg.vision_pretraining,
        sft=cfg.sft,
        seed=cfg.seed,
        system=cfg.instructions,
        token_budget=cfg.learn.token_budget,
        measure=lambda: evaluator.final_reports(policy, "before", episodes=final),
    )
    learner = make_learner(cfg, policy)
    with make_rollouts(cfg, policy, task, run.folder / "model") as rollouts:
        run.restore(**learner.saved())
        run.save_on_sigterm = not cfg.ray.staleness
        train(cfg, run, task, learner, rollouts, evaluator)
    return evaluator.finish(policy, start, episodes=final)


def train(cfg: Config, run: Run, task: Task, learner: Learner, rollouts: Rollouts, evaluator: Evaluator) -> None:
    """RLOO's iterations."""
    learn, filters = cfg.learn, cfg.sampling.filters()
    policy, optimizer, rewards = learner.policy, learner.optimizer, load_rewards(cfg.reward_functions)
    for step in run.steps(learn.iterations, "rloo"):
        # rollouts: `group_size` episodes from each of `groups` starts; none ahead over a checkpoint, so that it resumes
        evaluates = step % cfg.evaluation.every == 0 or step == learn.iterations
        clock = [time.perf_counter()]
        episodes = rollouts.collect(step, ahead=not evaluates)
        clock.append(time.perf_counter())

        # rewards: the environment's, and functions of your own
        episodes, lag = rewards.relabel(episodes), staleness_of(episodes, step)
        metrics = rollout_metrics(episodes, task.outcome) | reward_metrics(episodes)
        metrics["rollout/staleness"] = float(lag)
        stop_on_errors(episodes, metrics["rollout/error_rate"], cfg.max_error_rate)

        # advantages: the return, or each turn's reward-to-go, against the group's others
        kept, metrics["rollout/zero_variance_groups"] = drop_zero_variance_groups(episodes)
        if metrics["rollout/zero_variance_groups"] == 1.0:
            logger.warning("step %d: all returns within each group are equal, no gradient", step)
        advantages = CREDIT[learn.credit](kept, gamma=learn.gamma, baseline=BASELINES[learn.baseline])
        advantages = scale_advantages(advantages) if learn.scale_advantages else advantages
        advantages = [np.where(a < 0, learn.negative_advantage_weight * a, a) for a in advantages]
        batches = micro_batches(policy, pack(kept, advantages, loss_on=learn.loss_on), learn.token_budget)

        # update: gradients of the mean loss over the counted tokens of all micro-batches and processes
        policy.train()
        metrics |= set_learning_rate(
            optimizer, step, warmup=learn.lr_warmup, total=learn.iterations, schedule=learn.lr_schedule
        )
        for epoch in range(learn.epochs):
            sums = WeightedSum()
            for batch, share in weighted(batches, partial(loss_units, aggregate=learn.aggregate), policy=policy):
                scores = policy.evaluate(batch.inputs, **filters)
                # after an update, and of stale weights, log-probs differ, and rightly so: the ratio weighs them
                limit = math.inf if epoch or lag else learn.max_logprob_gap
                gap = logprob_gap(scores.logprobs, batch.logprobs, batch.turns >= 0, limit=limit)
                known = learner.reference_logprobs(batch.inputs, **filters)
                loss, stats = rloo_loss(scores, batch, known, learn=learn, kl=cfg.kl, kl_coef=learner.kl_coef.coef)
                (loss * share).backward()  # type: ignore[no-untyped-call]
                sums.add({"loss/total": loss.detach(), "policy/logprob_gap": gap, **stats}, share)
            sum_gradients(policy.parameters())
            means = {"loss/total": 0.0} | sums.over_processes()
            guard: dict[str, Any] = {"guard": learner.guard, "loss": means["loss/total"]}
            means |= clip_and_step(optimizer, policy.parameters(), max_norm=learn.max_grad_norm, **guard)
            # the first pass speaks of the policy that sampled
            metrics = means | metrics if epoch else metrics | means
        metrics |= {"loss/total": means["loss/total"]} | follow_reference(learner, cfg, means)

        # evaluate, log, checkpoint
        clock.append(time.perf_counter())
        metrics |= {"time/rollout": clock[1] - clock[0], "time/learn": clock[2] - clock[1]}
        if evaluates:
            report = evaluator.validate(policy, step, episodes=cfg.evaluation.episodes, greedy=False)
            metrics |= task.report_metrics(report) | {"time/evaluate": time.perf_counter() - clock[2]}
        run.log(metrics, step, show=f"{'eval' if evaluates else 'rollout'}/{task.best}")
        if evaluates:
            run.save(step, **learner.saved(), metrics=metrics, best=(f"eval/{task.best}", "max"))
            show_episodes(run.tracker, episodes, step, histograms=task.histograms(episodes))


def rloo_loss(
    scores: Scores, batch: Batch[TokenInputs], reference: Tensor | None, *, learn: Learn, kl: KL, kl_coef: float
) -> tuple[Tensor, Metrics]:
    """Clipped policy gradient − entropy_coef · entropy + kl_coef · KL to the reference, means over the counted tokens.

    With the weights that sampled this is REINFORCE's gradient: the clip binds in later passes and on stale episodes.
    """
    weights = aggregation_weights(batch.mask, learn.aggregate, horizon=learn.token_budget)
    policy_loss, stats = LOSSES[learn.policy_loss](
        scores.logprobs, batch.logprobs, batch.advantages, batch.mask, clip=learn.clip, weights=weights
    )
    entropy = entropy_bonus(scores.entropy, batch.mask)
    loss = policy_loss - learn.entropy_coef * entropy
    metrics = {"loss/policy": policy_loss.detach(), "policy/entropy": entropy.detach()}
    metrics |= {f"policy/{name}": value for name, value in stats.items()}
    if reference is not None:
        divergence, stats = kl_loss(scores.logprobs, reference, batch.mask, estimator=ESTIMATORS[kl.estimator])
        loss = loss + kl_coef * divergence
        metrics["policy/kl"] = stats["kl"]
    return loss, metrics


def loss_units(batch: Batch[TokenInputs], *, aggregate: str) -> Tensor:
    """What a micro-batch counts in the mean over all of them: its tokens, or its rows."""
    return batch.mask.sum() if aggregate == "token" else batch.mask.any(dim=1).sum()


def make_rollouts(cfg: Config, policy: ChatVLM, task: Task, folder: Path) -> Rollouts:
    """In this process, or by workers on Ray that read the untrained model from `folder` or by its name."""
    groups, group_size, ray = cfg.learn.groups, cfg.learn.group_size, cfg.ray
    return open_rollouts(
        policy,
        ray,
        actor=HFSampler(policy, cfg.sampling, system=cfg.instructions),
        make_env=task.make_env,
        specs_of=lambda step: task.specs(cfg.seed, "train", groups=groups, group_size=group_size, step=step),
        make_context=partial(
            worker_context,
            task,
            worker_model(cfg.model, gpus=ray.gpus),
            folder.resolve(),
            cfg.sampling,
            system=cfg.instructions,
            seed=cfg.seed,
            num_envs=ray.episodes_per_task,
        ),
    )
