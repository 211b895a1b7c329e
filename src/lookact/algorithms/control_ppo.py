"""Proximal policy optimisation of a control policy from a rollout (arXiv:1707.06347).

A step is a row of one unit, (b, 1), for the losses of `ops` that token policies learn by too. All sums run over the
steps of all processes, and a minibatch is drawn from all of them by one shuffle: rows split over two processes learn
what one process learns from them.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from itertools import chain, pairwise
from statistics import fmean
from typing import Any

import torch
from torch import Tensor, nn

from lookact.algorithms.token_ppo import mean_over_processes, value_loss
from lookact.batch import ControlInputs
from lookact.models.actor_critic import ActorCriticOutput, score
from lookact.ops.gaussian import gaussian_kl
from lookact.ops.masked import Metrics, masked_mean, whiten
from lookact.ops.policy_loss import entropy_bonus, ppo_clip
from lookact.ops.returns import gae
from lookact.ops.value_loss import explained_variance
from lookact.rollout.control_actor import ControlPolicy
from lookact.rollout.vector_rollout import Rollout
from lookact.seeding import derive, numpy_rng
from lookact.training.distributed import all_reduce_sum, rank, sum_gradients, world_size
from lookact.training.optim import NonFiniteGuard, accumulate, build_adamw, clip_and_step
from lookact.training.settings import PPO


@dataclass(frozen=True)
class StepBatch:
    """Steps that count, one below the other, as they were before the first gradient step; all are constants."""

    inputs: ControlInputs
    """(b, ...) with the actions taken; its memory is (b, hidden)."""
    old_logprobs: Tensor
    """(b, 1), as the three that follow."""
    old_values: Tensor
    advantages: Tensor
    returns: Tensor
    """The values' targets."""
    numbers: Tensor
    """(b,) each step's number among those of all processes, counted or not."""
    reference_mean: Tensor | None = None
    """(b, a) what the policy to stay close to would do."""
    reference_log_std: Tensor | None = None
    """(a,)"""

    def __len__(self) -> int:
        return len(self.numbers)

    def __getitem__(self, index: slice | Tensor) -> StepBatch:
        """Some of the steps; a slice copies nothing."""
        known = self.reference_mean
        return StepBatch(
            inputs=_pick(self.inputs, index),
            old_logprobs=self.old_logprobs[index],
            old_values=self.old_values[index],
            advantages=self.advantages[index],
            returns=self.returns[index],
            numbers=self.numbers[index],
            reference_mean=None if known is None else known[index],
            reference_log_std=self.reference_log_std,
        )


LossFn = Callable[[StepBatch], tuple[Tensor, Metrics]]
Reference = Callable[[ControlInputs], ActorCriticOutput]
"""Another policy, asked only what it would do."""


def open_optimizer(policy: Any, *, lr: float, critic_lr: float) -> torch.optim.AdamW:
    """One optimiser with a learning rate of its own for the critic."""
    return build_adamw({"critic": policy.critic, "policy": policy}, lr={"critic": critic_lr, "policy": lr}, fused=True)


def compute_advantages(rollout: Rollout, rewards: Tensor, *, gamma: float, lam: float) -> Tensor:
    """Advantages (t, rows) of a rollout with these rewards (t, rows)."""
    return gae(
        rewards.T,
        rollout.values.T,
        rollout.terminated.T,
        rollout.mask.T,
        gamma=gamma,
        lam=lam,
        last_values=rollout.last_values,
        truncated=rollout.truncated.T,
        truncated_values=rollout.truncated_values.T,
    ).T


def make_batch(
    rollout: Rollout, advantages: Tensor, *, whitened: bool, reference: Reference | None = None
) -> tuple[StepBatch, dict[str, float]]:
    """The rollout's counted steps with advantages (t, rows); targets are made before advantages are whitened."""
    mask, values = rollout.mask, rollout.values
    returns = advantages + values
    known = {
        "policy/explained_variance": explained_variance(values, returns, mask),
        "policy/value": masked_mean(values, mask),
        "policy/return": masked_mean(returns, mask),
    }
    if whitened:
        advantages = whiten(advantages, mask, sum_everywhere=all_reduce_sum)
    counted = mask.flatten().nonzero().squeeze(-1)

    def column(x: Tensor) -> Tensor:
        return x.flatten()[counted].unsqueeze(1)

    batch = StepBatch(
        inputs=_pick(_each(rollout.inputs, lambda part: part.flatten(0, 1)), counted),
        old_logprobs=column(rollout.logprobs),
        old_values=column(values),
        advantages=column(advantages),
        returns=column(returns),
        numbers=_numbers(mask).flatten()[counted],
    )
    return batch if reference is None else anchored(batch, reference), mean_over_processes(known)


@torch.no_grad()
def anchored(batch: StepBatch, reference: Reference, rows: int = 512) -> StepBatch:
    """The batch with what another policy would have done, asked `rows` steps at a time."""
    starts = range(0, max(1, len(batch)), rows)
    outlooks = [reference(_with_memory(_pick(batch.inputs, slice(start, start + rows)))) for start in starts]
    means = torch.cat([outlook.mean[:, 0] for outlook in outlooks])
    return replace(batch, reference_mean=means, reference_log_std=outlooks[0].log_std)


def objective(policy: ControlPolicy, ppo: PPO, *, acting: bool) -> LossFn:
    """The critic's loss and, where the actor learns too, the clipped surrogate, entropy and KL to the reference."""

    def loss(batch: StepBatch) -> tuple[Tensor, Metrics]:
        outlook = policy(_with_memory(batch.inputs))
        scores = score(outlook, batch.inputs.actions)
        # steps that do not count are not in the batch
        mask = torch.ones_like(batch.advantages, dtype=torch.bool)
        value, _ = value_loss(
            scores.values, batch.old_values, batch.returns, mask, kind=ppo.value_loss, clip=ppo.value_clip
        )
        if not acting:
            return value, {"loss/value": value.detach()}
        surrogate, parts = ppo_clip(
            scores.logprobs, batch.old_logprobs, batch.advantages, mask, clip=ppo.clip, clip_high=ppo.clip_high
        )
        entropy = entropy_bonus(scores.entropy, mask)
        total = surrogate + ppo.value_coef * value - ppo.entropy * entropy
        metrics = {"loss/policy": surrogate, "loss/value": value, "policy/entropy": entropy}
        metrics |= {f"policy/{name}": parts[name] for name in ("clip_fraction", "approx_kl")}
        if batch.reference_mean is not None and batch.reference_log_std is not None:
            distance = gaussian_kl(outlook.mean[:, 0], outlook.log_std, batch.reference_mean, batch.reference_log_std)
            metrics["policy/kl"] = masked_mean(distance.unsqueeze(1), mask)
            total = total + ppo.kl_coef * metrics["policy/kl"]
        return total, {name: part.detach() for name, part in metrics.items()}

    return loss


def learn(
    batch: StepBatch,
    loss_fn: LossFn,
    optimizer: torch.optim.Optimizer,
    guard: NonFiniteGuard,
    ppo: PPO,
    *,
    total: int,
    seed: int,
    policy: nn.Module | None = None,
) -> dict[str, float]:
    """Epochs over a batch that is `total` steps in all processes, until the policy has gone too far; mean metrics.

    Name a `policy` that may be sharded.
    """
    taken: list[dict[str, float]] = []
    epochs = (minibatches(batch, ppo, total, derive(seed, epoch)) for epoch in range(ppo.epochs))
    far = False
    for minibatch in chain.from_iterable(epochs):
        metrics = take_step(minibatch, loss_fn, optimizer, guard, ppo, policy)
        if metrics is None:
            far = True
            break
        taken.append(metrics)
    names = dict.fromkeys(name for metrics in taken for name in metrics)
    # a minibatch whose steps all did not happen has nothing to tell
    means = {name: fmean(metrics[name] for metrics in taken if name in metrics) for name in names}
    return means | {"optim/steps": len(taken), "policy/stopped": float(far)}


def minibatches(batch: StepBatch, ppo: PPO, total: int, seed: int) -> Iterator[StepBatch]:
    """This process's part of each minibatch of an epoch; one shuffle goes over the steps of all processes."""
    places = torch.from_numpy(numpy_rng(seed, "minibatches").permutation(total)).to(batch.numbers.device)
    own = places[batch.numbers]
    # gathered once an epoch, so that minibatches are views
    order = own.argsort()
    mixed, own = batch[order], own[order]
    parts = max(1, round(total / ppo.minibatch))
    bounds = [total * part // parts for part in range(1, parts)]
    edges = [0, *torch.searchsorted(own, torch.tensor(bounds, device=own.device)).tolist(), len(own)]
    for start, stop in pairwise(edges):
        yield mixed[start:stop]


def take_step(
    minibatch: StepBatch,
    loss_fn: LossFn,
    optimizer: torch.optim.Optimizer,
    guard: NonFiniteGuard,
    ppo: PPO,
    policy: nn.Module | None = None,
) -> dict[str, float] | None:
    """One gradient step; None, and no step, once the policy went too far."""
    loss, metrics = accumulate([minibatch], loss_fn, len, policy=policy)
    if ppo.max_kl is not None and metrics.get("policy/approx_kl", 0.0) > ppo.max_kl:
        optimizer.zero_grad()
        return None
    learned = [parameter for group in optimizer.param_groups for parameter in group["params"]]
    sum_gradients(learned)
    return metrics | clip_and_step(optimizer, learned, max_norm=ppo.clip_norm, guard=guard, loss=loss)


def _numbers(mask: Tensor) -> Tensor:
    """(t, rows) the place of each step in the rollout of all processes, whose rows they share in turn."""
    steps, rows = mask.shape
    everywhere = rows * world_size()
    row = rank() + world_size() * torch.arange(rows, device=mask.device)
    return torch.arange(steps, device=mask.device).unsqueeze(1) * everywhere + row


def _pick(inputs: ControlInputs, index: slice | Tensor) -> ControlInputs:
    return _each(inputs, lambda part: part[index])


def _with_memory(inputs: ControlInputs) -> ControlInputs:
    """Memory (b, hidden) as a policy takes it, (1, b, hidden)."""
    return inputs if inputs.carry is None else replace(inputs, carry=inputs.carry.unsqueeze(0))


def _each(inputs: ControlInputs, change: Callable[[Tensor], Tensor]) -> ControlInputs:
    return ControlInputs(
        actions=change(inputs.actions),
        state=change(inputs.state),
        images={camera: change(frames) for camera, frames in inputs.images.items()},
        text_ids=change(inputs.text_ids),
        history=change(inputs.history),
        carry=None if inputs.carry is None else change(inputs.carry),
    )
