"""PPO with a critic for multi-turn vision-language policies (arXiv:1707.06347), with GAE over tokens, turns or both.

SFT on an expert's demonstrations; then in each iteration rollouts, rewards with a KL penalty to the policy after SFT,
advantages from a learned critic, and minibatch epochs of the clipped surrogate. As recipe vqa-ppo it learns the task
"spatial-vqa".
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import replace
from functools import partial
from typing import Any

from torch import Tensor

from lookact.algorithms.evaluation import Evaluator
from lookact.algorithms.rollouts import Rollouts, open_rollouts, rollout_metrics, stop_on_errors
from lookact.algorithms.sft import measured_start, supervised_start
from lookact.algorithms.token_ppo import (
    MicroBatch,
    apply_kl_penalty,
    critic_metrics,
    mismatch_weights,
    pack_minibatches,
    scatter_advantages,
    score_units,
    token_advantages,
)
from lookact.batch import Scores
from lookact.ops.losses import entropy_bonus, k3, kl_loss, ppo_clip, value_loss
from lookact.ops.masked import Metrics
from lookact.ops.mismatch import ANYTHING
from lookact.protocols import Task
from lookact.recipes.ppo.config import Config
from lookact.recipes.ppo.evaluate import collect, evaluate, make_evaluator, make_task, open_critic, open_policy
from lookact.recipes.ppo.learner import Learner, make_learner, make_rewards
from lookact.seeding import numpy_rng
from lookact.training.distributed import mean_over_processes, sum_gradients
from lookact.training.evaluation import show_episodes
from lookact.training.optim import WeightedSum, clip_and_step, set_learning_rate, weighted
from lookact.training.run import Run
from lookact.types import Episode

__all__ = ["collect", "evaluate", "main"]


def main(cfg: Config, run: Run) -> dict[str, Any]:
    """SFT, PPO, and the reports before and after it."""
    task, final = make_task(cfg), cfg.evaluation.final_episodes
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
    learner = make_learner(cfg, policy, open_critic(policy, cfg, run.folder))
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
        max_logprob_gap=learner.limits.token,
    ) as rollouts:
        evaluator = replace(evaluator, rollouts=rollouts)
        start = measured_start(run, seconds, lambda: evaluator.final_reports(policy, "before", episodes=final))
        run.restore(**learner.saved())
        run.save_on_sigterm = not cfg.ray.staleness
        train(cfg, run, task, learner, rollouts, evaluator)
        return evaluator.finish(policy, start, episodes=final, version=cfg.learn.iterations)


def train(cfg: Config, run: Run, task: Task, learner: Learner, rollouts: Rollouts, evaluator: Evaluator) -> None:
    """PPO's iterations."""
    rewards, learn = make_rewards(cfg), cfg.learn
    specs_of = partial(task.specs, cfg.seed, "train", groups=learn.episodes)
    for step in run.steps(learn.iterations, "ppo"):
        # rollouts: the sampler first takes over the learner's weights
        evaluates = step % cfg.evaluation.every == 0 or step == learn.iterations
        clock = [time.perf_counter()]
        episodes = rollouts.collect(specs_of(step=step), step - 1)
        metrics = dict(rollouts.sync_metrics)
        if not evaluates:
            # none ahead over a checkpoint, so that it resumes
            rollouts.prefetch(specs_of(step=step + 1), step - 1)

        # rewards
        episodes = rewards.relabel(episodes)
        clock.append(time.perf_counter())
        metrics |= rollout_metrics(episodes, task.outcome, step)
        stop_on_errors(episodes, metrics["rollout/error_rate"], cfg.max_error_rate)

        # advantages
        stale = metrics["rollout/staleness"] > 0
        minibatches, stats = compute_advantages(cfg, learner, episodes, step, stale=stale)
        metrics |= stats

        # update: first the critic alone, then both
        acts = step > cfg.critic.warmup
        metrics |= set_rates(cfg, learner, step)
        metrics |= update(cfg, learner, minibatches, step, acts=acts)
        if cfg.kl.target is not None and "policy/kl" in metrics:
            metrics["policy/kl_coef"] = learner.kl_coef.update(max(0.0, metrics["policy/kl"]), learn.episodes)

        # evaluate, log, checkpoint
        clock.append(time.perf_counter())
        metrics |= {"time/rollout": clock[1] - clock[0], "time/learn": clock[2] - clock[1]}
        if evaluates:
            report = evaluator.validate(learner.policy, step, episodes=cfg.evaluation.episodes, greedy=True)
            metrics |= task.report_metrics(report) | {"time/evaluate": time.perf_counter() - clock[2]}
        run.log(metrics, step, show=f"{'eval' if evaluates else 'rollout'}/{task.best}")
        if evaluates:
            run.save(
                step, **learner.saved(), metrics=metrics, keep=cfg.evaluation.keep, best=(f"eval/{task.best}", "max")
            )
            show_episodes(run.tracker, episodes, step, histograms=task.histograms(episodes))


def set_rates(cfg: Config, learner: Learner, step: int) -> dict[str, float]:
    """The learning rates of a step; the actor's warmup begins where the critic's ends."""
    learn, alone = cfg.learn, cfg.critic.warmup
    rate = set_learning_rate(
        learner.optimizer,
        max(0, step - alone),
        warmup=learn.lr_warmup,
        total=max(1, learn.iterations - alone),
        schedule=learn.lr_schedule,
    )
    own = set_learning_rate(learner.critic_optimizer, step, total=learn.iterations, schedule=learn.lr_schedule)
    return rate | {"optim/critic_lr": own["optim/lr"]}


def compute_advantages(
    cfg: Config, learner: Learner, episodes: Sequence[Episode], step: int, *, stale: bool = False
) -> tuple[list[list[MicroBatch]], dict[str, float]]:
    """Rewards minus the KL penalty, advantages and returns of every token, in minibatches of micro-batches.

    Failed episodes are left out. Log-probs and values are the learner's, from before the first gradient step.
    """
    learn, credit = cfg.learn, cfg.credit
    layout, minibatches = pack_minibatches(
        [episode for episode in episodes if episode.error is None],
        learner.policy,
        numpy_rng(cfg.seed, "minibatches", step),
        minibatch_size=learn.minibatch_size,
        loss_on=learn.loss_on,
        token_budget=learn.token_budget,
    )
    units = score_units(layout, minibatches, learner.policy, learner.critic, learner.reference, learner.filters)
    # log-probs of stale weights differ, and rightly so: the importance weights make up for it
    limits = ANYTHING if stale else learner.limits
    weights, gaps = mismatch_weights(units, limits=limits, **learner.importance)
    units, kl = apply_kl_penalty(units, learner.kl_coef.coef if cfg.kl.use == "reward" else 0.0)
    advantages = token_advantages(
        units,
        method=credit.method,
        gamma=credit.gamma,
        lam=credit.lam,
        gamma_turn=credit.gamma_turn,
        lam_turn=credit.lam_turn,
    )
    metrics = mean_over_processes(kl | gaps | critic_metrics(units, advantages))
    return scatter_advantages(layout, minibatches, units, advantages, weights, whitened=credit.whiten), metrics


def update(
    cfg: Config, learner: Learner, minibatches: Sequence[Sequence[MicroBatch]], step: int, *, acts: bool
) -> dict[str, float]:
    """Epochs over the minibatches, one gradient step each, until the policy is beyond `max_kl`; mean metrics.

    Where the actor does not act yet, only the critic learns: a shared backbone is the actor's and must not move.
    """
    learn, policy, critic, filters = cfg.learn, learner.policy, learner.critic, learner.filters
    heads = [parameter for group in learner.critic_optimizer.param_groups for parameter in group["params"]]
    order = [
        minibatches[index]
        for epoch in range(learn.epochs)
        for index in numpy_rng(cfg.seed, "order", step, epoch).permutation(len(minibatches))
    ]
    policy.eval()
    taken: list[dict[str, float]] = []
    for minibatch in order:
        sums = WeightedSum()
        for micro, share in weighted(minibatch, lambda micro: micro.batch.mask.sum(), policy=policy):
            scores = (policy if acts else critic).evaluate(micro.batch.inputs, **filters)
            apart = acts and critic is not policy
            values = critic.evaluate(micro.batch.inputs, **filters).values if apart else scores.values
            loss, stats = ppo_loss(scores, values, micro, cfg, kl_coef=learner.kl_coef.coef, acts=acts)
            (loss * share).backward()  # type: ignore[no-untyped-call]
            sums.add({"loss/total": loss.detach(), **stats}, share)
        means = {"loss/total": 0.0} | sums.over_processes()
        too_far = learn.max_kl is not None and means.get("policy/approx_kl", 0.0) > learn.max_kl
        if too_far or not acts:
            learner.optimizer.zero_grad()
        if too_far:
            learner.critic_optimizer.zero_grad()
            break
        sum_gradients([*(policy.model.parameters() if acts else ()), *heads])
        clip = {"max_norm": learn.max_grad_norm, "loss": means["loss/total"]}
        own = clip_and_step(learner.critic_optimizer, heads, guard=learner.critic_guard, **clip)
        means["optim/critic_grad_norm"] = own["optim/grad_norm"]
        if acts:
            means |= clip_and_step(learner.optimizer, policy.model.parameters(), guard=learner.guard, **clip)
        taken.append(means)
    names = dict.fromkeys(name for means in taken for name in means)
    metrics = {name: sum(means[name] for means in taken) / len(taken) for name in names}
    return metrics | {"optim/steps": len(taken), "policy/stopped": float(len(taken) < len(order))}


def ppo_loss(
    scores: Scores, values: Tensor | None, micro: MicroBatch, cfg: Config, *, kl_coef: float, acts: bool
) -> tuple[Tensor, Metrics]:
    """Clipped surrogate + coef · value loss − entropy_coef · entropy + kl_coef · KL, means over the counted tokens."""
    learn, mask = cfg.learn, micro.batch.mask
    assert values is not None, "the critic has no value head"
    value = value_loss(values, micro.old_values, micro.returns, mask, kind=cfg.critic.loss, clip=cfg.critic.clip)
    if not acts:
        return value, {"loss/value": value.detach()}
    surrogate, stats = ppo_clip(
        scores.logprobs,
        micro.old_logprobs,
        micro.batch.advantages,
        mask,
        clip=learn.clip,
        clip_high=learn.clip_high,
        dual_clip=learn.dual_clip,
        weights=micro.weights,
    )
    entropy = entropy_bonus(scores.entropy, mask)
    loss = surrogate + cfg.critic.coef * value - learn.entropy_coef * entropy
    metrics = {"loss/policy": surrogate, "loss/value": value, "policy/entropy": entropy}
    metrics |= {f"policy/{name}": stat for name, stat in stats.items()}
    if cfg.kl.use == "loss" and micro.reference_logprobs is not None:
        metrics["loss/kl"], _ = kl_loss(scores.logprobs, micro.reference_logprobs, mask, estimator=k3)
        loss = loss + kl_coef * metrics["loss/kl"]
    return loss, {name: metric.detach() for name, metric in metrics.items()}
