"""One update of a control policy by PPO: act in all worlds, give credit, learn."""

from __future__ import annotations

import time
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from lookact.algorithms.control_ppo import compute_advantages, learn, make_batch, objective, open_optimizer
from lookact.envs.vector.vector_env import PlanEpisode
from lookact.models.control_reference import FrozenControl
from lookact.ops.moments import RunningMoments, sums
from lookact.rollout.vector_rollout import Rollout, Worlds, roll_out
from lookact.seeding import derive, torch_rng
from lookact.training.distributed import all_reduce_sum, rank, sum_by_name, world_size
from lookact.training.optim import NonFiniteGuard
from lookact.training.settings import PPO
from lookact.training.sharding import whole


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
    reference: FrozenControl | None
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
        reference=FrozenControl(policy) if anchored else None,
    )


def improve(
    learner: Learner,
    worlds: Worlds,
    ppo: PPO,
    *,
    steps: int,
    seed: int,
    plan_episode: PlanEpisode | None = None,
    acting: bool = True,
) -> dict[str, float]:
    """One update from `steps` steps a row; the processes' rows take turns in one long list of them.

    Without `acting` only the critic learns.
    """
    policy, began, restarts = learner.policy, time.perf_counter(), worlds.restarts
    everywhere = worlds.rows * world_size()
    # drawn for all rows in every process, so that a row's noise does not depend on who simulates it
    noise = torch.randn(steps, everywhere, policy.spec.action_size, generator=torch_rng(seed, "noise"))
    own = noise[:, rank() :: world_size()].to(policy.device)
    with whole(policy):
        rollout = roll_out(policy, worlds, noise=own, plan_episode=plan_episode)
    acted = time.perf_counter()

    rewards = rollout.rewards if learner.returns is None else scale_rewards(rollout, learner.returns, ppo.gamma)
    advantages = compute_advantages(rollout, rewards, gamma=ppo.gamma, lam=ppo.lam)
    batch, metrics = make_batch(rollout, advantages, whitened=ppo.whiten, reference=learner.reference)

    loss_fn, shuffle = objective(policy, ppo, acting=acting), derive(seed, "shuffle")
    how: dict[str, Any] = {"total": steps * everywhere, "seed": shuffle, "policy": policy}
    metrics |= learn(batch, loss_fn, learner.optimizer, learner.guard, ppo, **how)
    if learner.states is not None:
        note_states(rollout, learner.states, policy)
    metrics |= rollout_metrics(rollout, worlds.restarts - restarts)
    return metrics | {"time/rollout": acted - began, "time/learn": time.perf_counter() - acted}


def scale_rewards(rollout: Rollout, returns: RunningMoments, gamma: float) -> Tensor:
    """Rewards (t, rows) over the deviation of discounted sums of rewards, of this rollout and all before it."""
    running, found = torch.zeros_like(rollout.rewards[0]), []
    for reward, over in zip(rollout.rewards, rollout.terminated | rollout.truncated):
        running = gamma * running + reward
        found.append(running)
        running = running.masked_fill(over, 0.0)
    _merge(returns, torch.stack(found)[rollout.mask].unsqueeze(1))
    return rollout.rewards / float(returns.deviation)


def note_states(rollout: Rollout, states: RunningMoments, policy: Any) -> None:
    """Count the rollout's states in, and let the policy see states by their new mean and deviation."""
    _merge(states, rollout.inputs.state[rollout.mask])
    policy.set_statistics(states.mean.float(), states.deviation.float())


def rollout_metrics(rollout: Rollout, restarts: int) -> dict[str, float]:
    """What became of the episodes that ended, over all processes; broken ones are only counted."""
    whole = [each for each in rollout.ended if not each.broken]
    total = sum_by_name(
        {
            "episodes": len(whole),
            "success": sum(each.success for each in whole),
            "return": sum(each.reward for each in whole),
            "length": sum(each.steps for each in whole),
            "broken": len(rollout.ended) - len(whole),
            "restarts": restarts,
            "steps": float(rollout.mask.sum()),
        }
    )
    count = max(1.0, total["episodes"])
    return {
        "rollout/success_rate": total["success"] / count,
        "rollout/return": total["return"] / count,
        "rollout/length": total["length"] / count,
        "rollout/episodes": total["episodes"],
        "rollout/broken_episodes": total["broken"],
        "rollout/worker_restarts": total["restarts"],
        "rollout/steps": total["steps"],
    }


def _merge(moments: RunningMoments, vectors: Tensor) -> None:
    """Vectors (n, s) of all processes."""
    count, total, squares = sums(vectors.cpu())
    moments.merge(all_reduce_sum(count), all_reduce_sum(total), all_reduce_sum(squares))
