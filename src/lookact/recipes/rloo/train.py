"""RLOO for multi-turn vision-language policies: REINFORCE with a leave-one-out baseline (arXiv:2402.14740).

SFT on an expert's demonstrations; then in each iteration `group_size` episodes from each of `groups` starts, advantages
against the others of the group, and one or more passes of the clipped policy gradient over the sampled tokens.
As recipe nav-rloo it learns the task "navigation".
"""

from __future__ import annotations

import logging
import time
from dataclasses import replace
from functools import partial
from typing import Any, NamedTuple

import numpy as np
from torch import Tensor

from lookact.algorithms.evaluation import Evaluator
from lookact.algorithms.group_advantages import (
    BASELINES,
    anchor_advantages,
    count_groups,
    drop_zero_variance_groups,
    episode_advantages,
    pack,
    scale_advantages,
    turn_advantages,
)
from lookact.algorithms.rollouts import Rollouts, open_rollouts, rollout_metrics, stop_on_errors
from lookact.algorithms.sft import measured_start, supervised_start
from lookact.batch import Batch, Scores, TokenInputs
from lookact.data.packing import micro_batches
from lookact.ops.losses import aggregation_weights, cispo, entropy_bonus, gspo, k1, k2, k3, kl_loss, ppo_clip
from lookact.ops.masked import Metrics
from lookact.ops.mismatch import ANYTHING, MismatchGate, importance_weights
from lookact.protocols import Task
from lookact.recipes.rloo.config import KL, Config, Learn
from lookact.recipes.rloo.evaluate import collect, evaluate, make_evaluator, open_policy
from lookact.recipes.rloo.learner import Learner, follow_reference, limits_of, make_learner
from lookact.rewards.functions import WeightedParts, load_rewards
from lookact.tasks.registry import make_task
from lookact.training.distributed import all_reduce_sum, sum_gradients
from lookact.training.evaluation import show_episodes
from lookact.training.optim import WeightedSum, clip_and_step, set_learning_rate, weighted
from lookact.training.run import Run
from lookact.training.settings import ImportanceSampling
from lookact.types import Episode, EpisodeSpec

__all__ = ["collect", "evaluate", "main"]

logger = logging.getLogger(__name__)
ESTIMATORS = {"k1": k1, "k2": k2, "k3": k3}
LOSSES = {"ppo": ppo_clip, "gspo": gspo, "cispo": cispo}
CREDIT: dict[str, Any] = {
    "episode": lambda episodes, *, gamma, baseline: episode_advantages(episodes, baseline),
    "turn": turn_advantages,
    "anchor": anchor_advantages,
}


class OldPolicy(NamedTuple):
    """What the update begins from, (b, u) constants."""

    logprobs: Tensor
    weights: Tensor | None
    metrics: Metrics


def main(cfg: Config, run: Run) -> dict[str, Any]:
    """SFT, RLOO, and the reports before and after it."""
    task, final = make_task(cfg.env, cfg.seed), cfg.evaluation.final_episodes
    policy, evaluator = open_policy(cfg, run.folder / "model"), make_evaluator(cfg, run.folder)
    seconds = supervised_start(
        policy,
        task,
        run,
        vision=cfg.vision_pretraining,
        sft=cfg.sft,
        seed=cfg.seed,
        system=cfg.instructions,
        token_budget=cfg.learn.token_budget,
    )
    learner = make_learner(cfg, policy)
    with open_rollouts(
        policy,
        task,
        sampler=cfg.sampler,
        sampling=cfg.sampling,
        concurrency=cfg.rollout,
        system=cfg.instructions,
        model=cfg.model,
        vllm=cfg.vllm,
        ray=cfg.ray,
        seed=cfg.seed,
        folder=run.folder,
        max_logprob_gap=limits_of(cfg).token,
    ) as rollouts:
        evaluator = replace(evaluator, rollouts=rollouts)
        start = measured_start(run, seconds, lambda: evaluator.final_reports(policy, "before", episodes=final))
        run.restore(**learner.saved())
        run.save_on_sigterm = not cfg.ray.staleness
        train(cfg, run, task, learner, rollouts, evaluator)
        return evaluator.finish(policy, start, episodes=final, version=cfg.learn.iterations)


def train(cfg: Config, run: Run, task: Task, learner: Learner, rollouts: Rollouts, evaluator: Evaluator) -> None:
    """RLOO's iterations."""
    learn, filters, limits = cfg.learn, cfg.sampling.filters(), limits_of(cfg)
    policy, reference, optimizer = learner.policy, learner.reference, learner.optimizer
    rewards = load_rewards(cfg.reward_functions)
    for step in run.steps(learn.iterations, "rloo"):
        # rollouts and rewards of `groups` starts; none ahead over a checkpoint, so that it resumes
        evaluates = step % cfg.evaluation.every == 0 or step == learn.iterations
        clock = [time.perf_counter()]
        episodes, kept, metrics = collect_groups(cfg, task, rollouts, rewards, step)
        if not evaluates:
            rollouts.prefetch(train_specs(cfg, task, step + 1, groups=learn.groups), step - 1)
        clock.append(time.perf_counter())

        # advantages: the return, or each turn's reward-to-go, against the group's others
        advantages = CREDIT[learn.credit](kept, gamma=learn.gamma, baseline=BASELINES[learn.baseline])
        advantages = scale_advantages(advantages) if learn.scale_advantages else advantages
        advantages = [np.where(a < 0, learn.negative_advantage_weight * a, a) for a in advantages]
        batches = micro_batches(policy, pack(kept, advantages, loss_on=learn.loss_on), learn.token_budget)

        # update: gradients of the mean loss over the counted tokens of all micro-batches and processes
        policy.eval()
        metrics |= set_learning_rate(
            optimizer, step, warmup=learn.lr_warmup, total=learn.iterations, schedule=learn.lr_schedule
        )
        old, coef = list[OldPolicy](), learner.kl_coef.coef
        for epoch in range(learn.epochs):
            # after an update, and of stale weights, log-probs differ, and rightly so: the ratio weighs them
            gate = MismatchGate(ANYTHING if epoch or metrics["rollout/staleness"] else limits)
            sums = WeightedSum()
            shares = weighted(batches, partial(loss_units, aggregate=learn.aggregate), policy=policy)
            for number, (batch, share) in enumerate(shares):
                scores = policy.evaluate(batch.inputs, **filters)
                batch = replace(batch, mask=batch.mask & gate.agree(scores.logprobs, batch.logprobs, batch.turns >= 0))
                if not epoch:
                    old.append(old_policy(scores.logprobs, batch, cfg.importance_sampling))
                known = None if reference is None else reference.evaluate(batch.inputs, **filters).logprobs
                loss, stats = rloo_loss(scores, batch, old[number], known, learn=learn, kl=cfg.kl, kl_coef=coef)
                (loss * share).backward()  # type: ignore[no-untyped-call]
                sums.add({"loss/total": loss.detach(), **stats}, share)
            sum_gradients(policy.parameters())
            means = {"loss/total": 0.0} | sums.over_processes() | gate.judge(all_reduce_sum)
            guard: dict[str, Any] = {"guard": learner.guard, "loss": means["loss/total"]}
            means |= clip_and_step(optimizer, policy.parameters(), max_norm=learn.max_grad_norm, **guard)
            # the first pass speaks of the policy that sampled
            metrics = means | metrics if epoch else metrics | means
        metrics |= {"loss/total": means["loss/total"]} | (follow_reference(learner, cfg, means) if reference else {})

        # evaluate, log, checkpoint
        clock.append(time.perf_counter())
        metrics |= {"time/rollout": clock[1] - clock[0], "time/learn": clock[2] - clock[1]}
        if evaluates:
            report = evaluator.validate(policy, step, episodes=cfg.evaluation.episodes, greedy=False)
            metrics |= task.report_metrics(report) | {"time/evaluate": time.perf_counter() - clock[2]}
        run.log(metrics, step, show=f"{'eval' if evaluates else 'rollout'}/{task.best}")
        if evaluates:
            run.save(
                step, **learner.saved(), metrics=metrics, keep=cfg.evaluation.keep, best=(f"eval/{task.best}", "max")
            )
            show_episodes(run.tracker, episodes, step, histograms=task.histograms(episodes))


def collect_groups(
    cfg: Config, task: Task, rollouts: Rollouts, rewards: WeightedParts, step: int
) -> tuple[list[Episode], list[Episode], dict[str, float]]:
    """A step's episodes, those of them that carry a gradient, and numbers about it."""
    learn = cfg.learn
    refills = learn.refill_limit if learn.zero_variance == "refill" else 0
    judged: dict[str, Any] = {"credit": learn.credit, "gamma": learn.gamma} if refills else {}
    episodes: list[Episode] = []
    missing, rounds = learn.groups, 0
    while missing and rounds <= refills:
        # rollouts: `group_size` episodes from each start
        specs = train_specs(cfg, task, step, groups=missing, refill=rounds)
        ended = rollouts.collect(specs, step - 1)
        # rewards: the environment's, and functions of your own
        episodes += rewards.relabel(ended) if cfg.reward_functions else ended
        kept, dropped = drop_zero_variance_groups(episodes, **judged)
        missing, rounds = learn.groups - count_groups(kept), rounds + 1
    metrics = rollout_metrics(episodes, task.outcome, step) | rollouts.sync_metrics
    metrics |= {"rollout/zero_variance_groups": dropped, "rollout/refills": rounds - 1.0}
    stop_on_errors(episodes, metrics["rollout/error_rate"], cfg.max_error_rate)
    if dropped == 1.0:
        logger.warning("step %d: all returns within each group are equal, no gradient", step)
    return episodes, kept, metrics


def train_specs(cfg: Config, task: Task, step: int, *, groups: int, refill: int = 0) -> list[EpisodeSpec]:
    """A step's episodes; those of its refills are of other starts, by step and round alone."""
    split = f"train-refill{refill}" if refill else "train"
    specs = task.specs(cfg.seed, split, groups=groups, group_size=cfg.learn.group_size, step=step)
    return [replace(spec, group=spec.group + refill * cfg.learn.groups) for spec in specs]


def old_policy(logprobs: Tensor, batch: Batch[TokenInputs], importance: ImportanceSampling) -> OldPolicy:
    """The policy that the ratio is to: the sampler, or the learner before the update with weights for their ratio."""
    if importance.level == "none":
        return OldPolicy(batch.logprobs, None, {})
    weights, gaps = importance_weights(logprobs, batch.logprobs, batch.turns >= 0, **importance.options())
    return OldPolicy(logprobs.detach(), weights, {f"policy/mismatch_{name}": gap for name, gap in gaps.items()})


def rloo_loss(
    scores: Scores,
    batch: Batch[TokenInputs],
    old: OldPolicy,
    reference: Tensor | None,
    *,
    learn: Learn,
    kl: KL,
    kl_coef: float,
) -> tuple[Tensor, Metrics]:
    """Clipped policy gradient − entropy_coef · entropy + kl_coef · KL to the reference, means over the counted tokens.

    With the weights that sampled this is REINFORCE's gradient: the clip binds in later passes and on stale episodes.
    """
    weights = aggregation_weights(batch.mask, learn.aggregate, horizon=learn.token_budget)
    weights = weights if old.weights is None else weights * old.weights
    policy_loss, stats = LOSSES[learn.policy_loss](
        scores.logprobs, old.logprobs, batch.advantages, batch.mask, clip=learn.clip, weights=weights
    )
    entropy = entropy_bonus(scores.entropy, batch.mask)
    loss = policy_loss - learn.entropy_coef * entropy
    metrics = {"loss/policy": policy_loss.detach(), "policy/entropy": entropy.detach(), **old.metrics}
    metrics |= {f"policy/{name}": value for name, value in stats.items()}
    if reference is not None:
        divergence, stats = kl_loss(scores.logprobs, reference, batch.mask, estimator=ESTIMATORS[kl.estimator])
        loss = loss + kl_coef * divergence
        metrics["policy/kl"] = stats["kl"]
    return loss, metrics


def loss_units(batch: Batch[TokenInputs], *, aggregate: str) -> Tensor:
    """What a micro-batch counts in the mean over all of them: its tokens, or its rows."""
    return batch.mask.sum() if aggregate == "token" else batch.mask.any(dim=1).sum()
