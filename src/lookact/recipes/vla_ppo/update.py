"""Reinforcement in vla-ppo: act in many worlds at once, credit steps with a critic, and move within a clip.

Every update begins with fresh episodes whose seeds are derived from the update's number. What a rollout holds then
depends on the weights alone: a resumed run needs no simulator's state, goes on bit for bit, and a curriculum is a
matter of which starts are planned.
"""

from __future__ import annotations

import time
from dataclasses import dataclass
from functools import lru_cache, partial
from typing import Any

import numpy as np
import torch
from torch import Tensor

from lookact.algorithms.control_ppo import (
    StepBatch,
    compute_advantages,
    critic_metrics,
    make_batch,
    mean_metrics,
    minibatches,
    open_optimizer,
    rollout_metrics,
    scale_rewards,
    update_state_statistics,
)
from lookact.envs.tabletop.randomise import draw_start
from lookact.envs.vector.vector_env import PipelinedVectorEnv
from lookact.errors import ConfigError
from lookact.models.actor_critic import FrozenPolicy, score
from lookact.models.vla.checkpoint import save_encoders
from lookact.models.vla.policy import VLA
from lookact.ops.gaussian import gaussian_kl
from lookact.ops.masked import masked_mean, whiten
from lookact.ops.moments import RunningMoments
from lookact.ops.policy_loss import entropy_bonus, ppo_clip
from lookact.ops.value_loss import clipped_value_loss, huber_value_loss
from lookact.protocols import VectorEnvLike
from lookact.recipes.vla_ppo.config import Config, Learn, World
from lookact.recipes.vla_ppo.demos import cores
from lookact.recipes.vla_ppo.evaluate import keep_in, measure, metrics_of
from lookact.recipes.vla_ppo.task import table_maker
from lookact.rollout.vector_rollout import Rollout, collect_rollout
from lookact.seeding import derive, torch_rng
from lookact.training.distributed import all_reduce_sum, rank, sum_by_name, sum_gradients, world_size
from lookact.training.kept_episodes import step_name
from lookact.training.optim import NonFiniteGuard, clip_and_step, set_learning_rate
from lookact.training.run import Run
from lookact.training.settings import PPO
from lookact.training.sharding import make_whole, share_out_control, whole
from lookact.training.weights import Weights
from lookact.types import PlanEpisode


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
    weights: dict[str, Weights] = {"model": policy, "readers": partial(save_encoders, policy)}
    state = learner.state()
    run.restore(weights=weights, state=state)
    worlds = open_worlds(cfg.world, learn)
    try:
        for step in run.steps(learn.updates, "reinforcing"):
            # look, act, credit, learn
            policy.set_progress((step - 1) / learn.updates)
            metrics = set_learning_rate(learner.optimizer, step - 1, total=learn.updates, schedule=learn.schedule)
            seed, plan, restarts, began = (
                derive(cfg.seed, "update", step),
                plan_update(cfg, step),
                worlds.restarts,
                time.perf_counter(),
            )
            rollout = collect_experience(policy, worlds, steps=learn.steps, seed=seed, plan_episode=plan)
            metrics |= rollout_metrics(rollout, worlds.restarts - restarts)
            acted = time.perf_counter()
            metrics |= ppo_update(
                learner, rollout, ppo, seed=derive(seed, "shuffle"), train_actor=step > learn.critic_warmup
            )
            metrics |= {"time/rollout": acted - began, "time/learn": time.perf_counter() - acted}

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


@dataclass(frozen=True)
class Learner:
    """A policy and all that its learning remembers."""

    policy: Any
    optimizer: torch.optim.AdamW
    guard: NonFiniteGuard
    states: RunningMoments | None
    """Of what the arm's state was so far; None: the policy's own statistics stay."""
    returns: RunningMoments | None
    """Of discounted sums of rewards, by whose deviation rewards are divided; None: rewards are taken as they are."""
    reference: FrozenPolicy | None
    """What the policy is held close to."""

    def state(self) -> dict[str, Any]:
        """For a checkpoint, beside the policy's weights."""
        parts = {name: value for name, value in vars(self).items() if name != "policy"}
        return {name: part for name, part in parts.items() if part is not None}


def open_learner(
    policy: Any, *, lr: float, critic_lr: float, normalise_state: bool, scale_rewards: bool, anchored: bool
) -> Learner:
    """A learner that begins with the policy as it is."""
    return Learner(
        policy=policy,
        optimizer=open_optimizer(policy, lr=lr, critic_lr=critic_lr),
        guard=NonFiniteGuard(),
        states=RunningMoments(policy.spec.state_size) if normalise_state else None,
        returns=RunningMoments(1) if scale_rewards else None,
        reference=FrozenPolicy(policy) if anchored else None,
    )


def collect_experience(
    policy: Any, envs: VectorEnvLike, *, steps: int, seed: int, plan_episode: PlanEpisode | None = None
) -> Rollout:
    """`steps` steps of every environment; the noise of an environment does not depend on which process has it."""
    shape = (steps, envs.num_envs * world_size(), policy.spec.action_size)
    noise = torch.randn(shape, generator=torch_rng(seed, "noise"))[:, rank() :: world_size()]
    with whole(policy):
        return collect_rollout(policy, envs, noise=noise.to(policy.device), plan_episode=plan_episode)


def ppo_update(
    learner: Learner, rollout: Rollout, ppo: PPO, *, seed: int, train_actor: bool = True
) -> dict[str, float]:
    """Gradient steps from a rollout; without `train_actor` only the critic learns."""
    policy, optimizer = learner.policy, learner.optimizer

    # rewards, divided by the standard deviation of discounted returns
    rewards = rollout.rewards if learner.returns is None else scale_rewards(rollout, learner.returns, ppo.gamma)

    # advantages: GAE, whitened over the rollout; the values' targets come before whitening
    advantages = compute_advantages(rollout, rewards, gamma=ppo.gamma, lam=ppo.lam)
    returns = advantages + rollout.values
    if ppo.whiten:
        advantages = whiten(advantages, rollout.mask, sum_everywhere=all_reduce_sum)
    batch = make_batch(rollout, advantages, returns, reference=learner.reference)

    # update: shuffled minibatches until the epochs, or the KL divergence from the acting policy, are through
    learned = [parameter for group in optimizer.param_groups for parameter in group["params"]]
    taken: list[dict[str, float]] = []
    stopped = False
    for minibatch in minibatches(batch, epochs=ppo.epochs, size=ppo.minibatch, seed=seed):
        loss, parts = ppo_loss(policy, minibatch, ppo, train_actor=train_actor)
        (loss * minibatch.weight).backward()  # type: ignore[no-untyped-call]
        parts["loss"] = loss
        told = sum_by_name({name: float(x.detach()) * minibatch.weight for name, x in parts.items()})
        total = told.pop("loss")
        if ppo.max_kl is not None and told.get("policy/approx_kl", 0.0) > ppo.max_kl:
            optimizer.zero_grad()
            stopped = True
            break
        sum_gradients(learned)
        taken.append(told | clip_and_step(optimizer, learned, max_norm=ppo.clip_norm, guard=learner.guard, loss=total))
    if learner.states is not None:
        update_state_statistics(rollout, learner.states, policy)
    metrics = critic_metrics(rollout, returns) | mean_metrics(taken)
    return metrics | {"optim/steps": len(taken), "policy/stopped": float(stopped)}


def ppo_loss(policy: Any, minibatch: StepBatch, ppo: PPO, *, train_actor: bool) -> tuple[Tensor, dict[str, Tensor]]:
    """Value loss and, where the actor learns too, clipped surrogate, entropy bonus and KL to the reference."""
    output, mask = policy(minibatch.inputs), minibatch.mask
    scores = score(output, minibatch.inputs.actions)
    values, targets = output.values.unsqueeze(1), minibatch.returns
    if ppo.value_loss == "clipped":
        value_loss, _ = clipped_value_loss(values, minibatch.old_values, targets, mask, clip=ppo.value_clip)
    else:
        value_loss, _ = huber_value_loss(values, targets, mask, delta=ppo.value_clip)
    parts = {"loss/value": value_loss}
    if not train_actor:
        return value_loss, parts
    old, advantages = minibatch.old_logprobs, minibatch.advantages
    policy_loss, ratios = ppo_clip(scores.logprobs, old, advantages, mask, clip=ppo.clip, clip_high=ppo.clip_high)
    entropy = entropy_bonus(scores.entropy, mask)
    loss = policy_loss + ppo.value_coef * value_loss - ppo.entropy_coef * entropy
    parts |= {"loss/policy": policy_loss, "policy/entropy": entropy}
    parts |= {f"policy/{name}": ratios[name] for name in ("clip_fraction", "approx_kl")}
    if minibatch.reference_mean is not None and minibatch.reference_log_std is not None:
        reference = minibatch.reference_mean, minibatch.reference_log_std
        kl = masked_mean(gaussian_kl(output.mean[:, 0], output.log_std, *reference).unsqueeze(1), mask)
        loss, parts["policy/kl"] = loss + ppo.kl_coef * kl, kl
    return loss, parts


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
