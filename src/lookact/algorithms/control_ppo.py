"""PPO for control policies (arXiv:1707.06347), the parts that recipes share; the loss stands in a recipe's `train.py`.

A step is a row of one unit, (b, 1), for the losses of `ops` that token policies learn by too. All sums run over the
steps of all processes, and a minibatch is drawn from all of them by one shuffle: environments split over two processes
teach what they teach in one.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise
from statistics import fmean
from typing import Any

import torch
from torch import Tensor

from lookact.batch import ActorCriticOutput, ControlInputs, to_device
from lookact.models.actor_critic import FrozenPolicy
from lookact.ops.advantages import gae
from lookact.ops.logprobs import gaussian_kl
from lookact.ops.losses import explained_variance
from lookact.ops.masked import RunningMoments, masked_mean, sums
from lookact.protocols import VectorEnvLike
from lookact.rollout.vector_rollout import Rollout, collect_rollout
from lookact.seeding import derive, numpy_rng, torch_rng
from lookact.training.distributed import (
    all_reduce_sum,
    gather,
    mean_over_processes,
    rank,
    sum_by_name,
    unsharded,
    world_size,
)
from lookact.training.optim import NonFiniteGuard, accumulate, build_adamw
from lookact.types import PlanEpisode

Reference = Callable[[ControlInputs], ActorCriticOutput]
"""A frozen policy to stay close to."""


@dataclass(frozen=True)
class StepBatch:
    """The counted steps of a rollout, or a minibatch of them, as they were before the first gradient step."""

    inputs: ControlInputs
    """(b, ...) with the actions taken; memory is (1, b, hidden)."""
    old_logprobs: Tensor
    """(b, 1), as the three that follow."""
    old_values: Tensor
    advantages: Tensor
    returns: Tensor
    """The values' targets."""
    numbers: Tensor
    """(b,) each step's number among the `total` of all processes, counted or not."""
    total: int
    reference_mean: Tensor | None = None
    """(b, a) what the reference would do."""
    reference_log_std: Tensor | None = None
    """(a,); (b, a) of a flow policy"""
    weight: float = 1.0
    """This process's share of a minibatch's steps: mean losses and metrics count by it."""

    def __len__(self) -> int:
        return len(self.numbers)

    def __getitem__(self, index: slice | Tensor) -> StepBatch:
        """Some of the steps; a slice copies nothing."""
        known, spread = self.reference_mean, self.reference_log_std
        return replace(
            self,
            inputs=_each(self.inputs, lambda part: part[index], lambda carry: carry[:, index]),
            old_logprobs=self.old_logprobs[index],
            old_values=self.old_values[index],
            advantages=self.advantages[index],
            returns=self.returns[index],
            numbers=self.numbers[index],
            reference_mean=None if known is None else known[index],
            reference_log_std=spread if spread is None or spread.dim() == 1 else spread[index],
        )

    @property
    def counted(self) -> int:
        """How many steps count: none of one that only keeps another process company."""
        return len(self) if self.weight else 0

    def micro_batches(self, size: int | None) -> list[StepBatch]:
        """In order, `size` steps each, the last as many as are left; None: all in one."""
        return [self[start : start + size] for start in range(0, len(self), size)] if size else [self]

    @property
    def mask(self) -> Tensor:
        """(b, 1) all True: steps that do not count are not in the batch."""
        return torch.ones_like(self.advantages, dtype=torch.bool)


@dataclass(frozen=True)
class Learner:
    """A policy and the state of its training."""

    policy: Any
    optimizer: torch.optim.AdamW
    guard: NonFiniteGuard
    states: RunningMoments | None
    """Running statistics of states; None: the policy's own stay."""
    returns: RunningMoments | None
    """Running statistics of discounted returns, for reward scaling; None: no scaling."""
    reference: FrozenPolicy | None
    """The policy of the KL term."""

    def state(self) -> dict[str, Any]:
        """For a checkpoint, beside the policy's weights."""
        return {name: part for name, part in vars(self).items() if name != "policy" and part is not None}


LossFn = Callable[[StepBatch], tuple[Tensor, dict[str, Tensor]]]
"""The mean loss over a batch's steps, and means to log."""


def open_learner(
    policy: Any, *, lr: float, critic_lr: float, normalise_state: bool, scale_rewards: bool, reference: bool
) -> Learner:
    """A learner that begins with the policy as it is."""
    return Learner(
        policy=policy,
        optimizer=open_optimizer(policy, lr=lr, critic_lr=critic_lr),
        guard=NonFiniteGuard(),
        states=RunningMoments(policy.spec.state_size) if normalise_state else None,
        returns=RunningMoments(1) if scale_rewards else None,
        reference=FrozenPolicy(policy) if reference else None,
    )


def collect_experience(
    policy: Any, envs: VectorEnvLike, *, steps: int, seed: int, plan_episode: PlanEpisode | None = None
) -> Rollout:
    """`steps` steps of every environment; the noise of an environment does not depend on which process has it."""
    shape = (steps, envs.num_envs * world_size(), policy.spec.sample_size)
    noise = torch.randn(shape, generator=torch_rng(seed, "noise"))[:, rank() :: world_size()]
    with unsharded(policy):
        return collect_rollout(policy, envs, noise=noise.to(policy.device), plan_episode=plan_episode)


def open_optimizer(policy: Any, *, lr: float, critic_lr: float) -> torch.optim.AdamW:
    """AdamW with a learning rate of its own for the critic."""
    return build_adamw({"critic": policy.critic, "policy": policy}, lr={"critic": critic_lr, "policy": lr}, fused=True)


def scale_rewards(rollout: Rollout, returns: RunningMoments, gamma: float) -> Tensor:
    """Rewards (t, rows) over the standard deviation of discounted returns, of this rollout and all before it."""
    running, found = torch.zeros_like(rollout.rewards[0]), []
    for reward, over in zip(rollout.rewards, rollout.terminated | rollout.truncated):
        running = gamma * running + reward
        found.append(running)
        running = running.masked_fill(over, 0.0)
    _merge(returns, torch.stack(found)[rollout.mask].unsqueeze(1))
    return rollout.rewards / float(returns.deviation)


def update_state_statistics(rollout: Rollout, states: RunningMoments, policy: Any) -> None:
    """Count the rollout's states in; the policy normalises states by their new mean and standard deviation."""
    _merge(states, rollout.inputs.state[rollout.mask])
    policy.set_statistics(states.mean.float(), states.deviation.float())


def compute_advantages(
    rollout: Rollout, rewards: Tensor, *, gamma: float, lam: float, bootstrap_timeouts: bool = True
) -> Tensor:
    """GAE (t, rows) of a rollout with these rewards (t, rows); a truncated episode is bootstrapped.

    Without `bootstrap_timeouts` one that ran out of time is over, as if it had failed; one whose worker failed is not.
    """
    timeouts = rollout.truncated & rollout.mask
    return gae(
        rewards.T,
        rollout.values.T,
        (rollout.terminated if bootstrap_timeouts else rollout.terminated | timeouts).T,
        rollout.mask.T,
        gamma=gamma,
        lam=lam,
        last_values=rollout.last_values,
        truncated=rollout.truncated.T,
        truncated_values=rollout.truncated_values.T,
    ).T


def critic_metrics(rollout: Rollout, returns: Tensor) -> dict[str, float]:
    """How well values predicted the returns (t, rows), before the critic learns from them; means over processes."""
    return mean_over_processes(
        {
            "policy/explained_variance": explained_variance(rollout.values, returns, rollout.mask),
            "policy/value": masked_mean(rollout.values, rollout.mask),
            "policy/return": masked_mean(returns, rollout.mask),
        }
    )


def make_batch(
    rollout: Rollout, advantages: Tensor, returns: Tensor, *, reference: Reference | None = None
) -> StepBatch:
    """The rollout's counted steps with advantages and returns (t, rows)."""
    steps, rows = rollout.mask.shape
    everywhere = rows * world_size()
    # the processes' rows take turns in one long list of all steps
    row = rank() + world_size() * torch.arange(rows, device=advantages.device)
    numbers = torch.arange(steps, device=advantages.device).unsqueeze(1) * everywhere + row
    counted = rollout.mask.flatten().nonzero().squeeze(-1)

    def column(x: Tensor) -> Tensor:
        return x.flatten()[counted].unsqueeze(1)

    batch = StepBatch(
        inputs=_each(
            rollout.inputs,
            lambda part: part.flatten(0, 1)[counted],
            lambda carry: carry.flatten(0, 1)[counted].unsqueeze(0),
        ),
        old_logprobs=column(rollout.logprobs),
        old_values=column(rollout.values),
        advantages=column(advantages),
        returns=column(returns),
        numbers=numbers.flatten()[counted],
        total=steps * everywhere,
    )
    return batch if reference is None else with_reference(batch, reference)


@torch.no_grad()
def with_reference(batch: StepBatch, reference: Reference, rows: int = 512) -> StepBatch:
    """The batch with what the reference would have done, `rows` steps at a time."""
    outputs = [reference(batch[start : start + rows].inputs) for start in range(0, max(1, len(batch)), rows)]
    means = torch.cat([output.mean[:, 0] for output in outputs])
    log_std = outputs[0].log_std
    if log_std.dim() > 1:
        log_std = torch.cat([output.log_std for output in outputs])
    return replace(batch, reference_mean=means, reference_log_std=log_std)


def reference_kl(output: ActorCriticOutput, minibatch: StepBatch) -> Tensor:
    """The mean KL divergence to the reference over a minibatch's steps; zero without one."""
    if minibatch.reference_mean is None or minibatch.reference_log_std is None:
        return minibatch.advantages.new_zeros(())
    kl = gaussian_kl(output.mean[:, 0], output.log_std, minibatch.reference_mean, minibatch.reference_log_std)
    return masked_mean(kl.unsqueeze(1), minibatch.mask)


def minibatches(batch: StepBatch, *, epochs: int, size: int, seed: int) -> Iterator[StepBatch]:
    """This process's part of each minibatch of about `size` steps; an epoch's shuffle goes over all processes' steps.

    A process with no step in a minibatch is given one of weight 0: a pass through a sharded policy takes all of them.
    """
    parts = max(1, round(batch.total / size))
    bounds = torch.tensor([batch.total * part // parts for part in range(1, parts)], device=batch.numbers.device)
    spare = _spare(batch)
    for epoch in range(epochs):
        permutation = numpy_rng(derive(seed, epoch), "minibatches").permutation(batch.total)
        own = torch.from_numpy(permutation).to(batch.numbers.device)[batch.numbers]
        # gathered once an epoch, so that minibatches are views
        order = own.argsort()
        shuffled = batch[order]
        for start, stop in pairwise([0, *torch.searchsorted(own[order], bounds).tolist(), len(batch)]):
            count = all_reduce_sum(float(stop - start))
            if count:
                yield replace(shuffled[start:stop] if stop > start else spare, weight=(stop - start) / count)


def accumulate_minibatch(
    policy: Any, minibatch: StepBatch, loss_fn: LossFn, size: int | None
) -> tuple[float, dict[str, float]]:
    """Gradients of a minibatch's mean loss, from `size` steps at a time; that loss and its metrics over all processes.

    `distributed.sum_gradients` follows.
    """
    return accumulate(minibatch.micro_batches(size), loss_fn, lambda part: part.counted, policy=policy)


def mean_metrics(steps: Sequence[dict[str, float]]) -> dict[str, float]:
    """The mean of each metric over the gradient steps that have it."""
    names = dict.fromkeys(name for metrics in steps for name in metrics)
    return {name: fmean(metrics[name] for metrics in steps if name in metrics) for name in names}


def rollout_metrics(rollout: Rollout, restarts: int) -> dict[str, float]:
    """Means over the episodes that ended, in all processes; failed ones are only counted."""
    whole = [each for each in rollout.episodes if not each.failed]
    total = sum_by_name(
        {
            "episodes": len(whole),
            "success": sum(each.success for each in whole),
            "return": sum(each.reward for each in whole),
            "length": sum(each.steps for each in whole),
            "failed": len(rollout.episodes) - len(whole),
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
        "rollout/failed_episodes": total["failed"],
        "rollout/worker_restarts": total["restarts"],
        "rollout/steps": total["steps"],
    }


class SampleCount:
    """Episodes that learning took so far, and until validation first reached 80% success; resumable."""

    def __init__(self) -> None:
        self.episodes, self.until_80 = 0.0, -1.0

    def count(self, metrics: dict[str, float]) -> dict[str, float]:
        """A rollout's metrics with the episodes up to its end."""
        self.episodes += metrics["rollout/episodes"]
        return metrics | {"rollout/episodes_total": self.episodes}

    def validated(self, success_rate: float) -> dict[str, float]:
        """After a validation; nothing to tell before 80%."""
        if self.until_80 < 0 and success_rate >= 0.8:
            self.until_80 = self.episodes
        return {} if self.until_80 < 0 else {"eval/episodes_to_80": self.until_80}

    def state_dict(self) -> dict[str, float]:
        return dict(vars(self))

    def load_state_dict(self, state: dict[str, float]) -> None:
        vars(self).update(state)


class FailedStarts:
    """The last starts of episodes that failed, to be tried again; resumable.

    A start is an environment's own pair of seeds, of its scene and of its places.
    """

    def __init__(self, size: int = 64) -> None:
        self.size, self.starts = size, list[tuple[int, int]]()

    def update(self, rollout: Rollout) -> dict[str, float]:
        """Count a rollout's episodes in; success is told apart for new starts and for those tried again."""
        episodes = [each for each in rollout.episodes if not each.failed and each.start is not None]
        ended = sorted({(each.start, each.success) for part in gather(episodes) for each in part if each.start})
        known, missed = set(self.starts), {start for start, success in ended if not success}
        # what fails again is recent again
        self.starts = [*(start for start in self.starts if start not in missed), *sorted(missed)][-self.size :]
        metrics = {"rollout/failed_starts": float(len(self.starts))}
        for name, again in (("new", False), ("retry", True)):
            tried = [success for start, success in ended if (start in known) == again]
            if tried:
                metrics[f"rollout/{name}_success_rate"] = fmean(map(float, tried))
        return metrics

    def choose(self, seed: int, share: float) -> dict[str, int]:
        """Options of an episode: with probability `share` a start that failed, else none.

        Less often while there are few, so that no start has more than a sixteenth of that share.
        """
        rng = numpy_rng(seed, "failed starts")
        if rng.random() >= share * min(1.0, len(self.starts) / 16):
            return {}
        return dict(zip(("scene_seed", "start_seed"), self.starts[int(rng.integers(len(self.starts)))]))

    def state_dict(self) -> dict[str, Any]:
        return {"starts": [list(start) for start in self.starts]}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        self.starts = [(int(scene), int(places)) for scene, places in state["starts"]]


def _merge(moments: RunningMoments, vectors: Tensor) -> None:
    """Vectors (n, s) of all processes."""
    count, total, squares = sums(vectors.cpu())
    moments.merge(all_reduce_sum(count), all_reduce_sum(total), all_reduce_sum(squares))


def _spare(batch: StepBatch) -> StepBatch:
    """One step of this process, or, where it has none at all, of another."""
    if world_size() == 1 or all(gather(len(batch))):
        return batch[:1]
    lent = gather(to_device(batch[:1], "cpu") if len(batch) else None)
    return to_device(next((step for step in lent if step is not None), batch), batch.numbers.device)


def _each(
    inputs: ControlInputs, change: Callable[[Tensor], Tensor], change_carry: Callable[[Tensor], Tensor]
) -> ControlInputs:
    return ControlInputs(
        actions=change(inputs.actions),
        state=change(inputs.state),
        images={camera: change(frames) for camera, frames in inputs.images.items()},
        text_ids=change(inputs.text_ids),
        history=change(inputs.history),
        carry=None if inputs.carry is None else change_carry(inputs.carry),
        true_state=None if inputs.true_state is None else change(inputs.true_state),
    )
