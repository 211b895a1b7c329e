"""The learning half of PPO over units: score what was done, give credit, and weigh the critic's errors.

Old log-probabilities are the learner's own, scored before the first gradient step; those that the engine sampled
with enter only through truncated importance weights.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any, Literal

import torch
from torch import Tensor

from lookact.algorithms.episode_tensors import Chunk, Layout
from lookact.batch import Batch, Scores, TokenInputs
from lookact.ops.advantages import bilevel_gae, monte_carlo, turn_gae
from lookact.ops.kl import k1
from lookact.ops.masked import Metrics, masked_mean, whiten
from lookact.ops.mismatch import truncated_importance
from lookact.ops.returns import gae
from lookact.ops.value_loss import clipped_value_loss, explained_variance, huber_value_loss
from lookact.training.distributed import all_reduce_sum, sum_by_name, world_size
from lookact.training.mismatch import check_mismatch

Method = Literal["monte_carlo", "gae", "turn", "bilevel"]
Score = Callable[[Any], Scores]
"""Scores of a batch's inputs."""


@dataclass(frozen=True)
class EpisodeTensors:
    """Every unit of a step's episodes; tensors are (episodes, units)."""

    mask: Tensor
    turns: Tensor
    rewards: Tensor
    engine_logprobs: Tensor
    logprobs: Tensor
    values: Tensor
    reference_logprobs: Tensor | None
    """None: nothing to stay close to."""


@dataclass(frozen=True)
class Lesson:
    """A micro-batch as it was before the first gradient step; every tensor is (b, u) and a constant."""

    batch: Batch[TokenInputs]
    """With its advantages."""
    old_logprobs: Tensor
    old_values: Tensor
    returns: Tensor
    """The values' targets."""
    weights: Tensor
    """For engine and learner differing."""
    reference_logprobs: Tensor | None


@torch.no_grad()
def episode_tensors(
    chunks: Sequence[Chunk], layout: Layout, policy: Score, critic: Score, reference: Score | None
) -> EpisodeTensors:
    """Scores all of a step's units with the weights that acted; the critic may be the policy itself."""
    scores = [policy(chunk.batch.inputs) for chunk in chunks]
    judged = scores if critic is policy else [critic(chunk.batch.inputs) for chunk in chunks]
    known = None if reference is None else [reference(chunk.batch.inputs).logprobs for chunk in chunks]
    return EpisodeTensors(
        mask=layout.gather(chunks, [chunk.batch.mask for chunk in chunks]).bool(),
        turns=layout.gather_turns(chunks),
        rewards=layout.gather(chunks, [chunk.batch.rewards for chunk in chunks]),
        engine_logprobs=layout.gather(chunks, [chunk.batch.logprobs for chunk in chunks]),
        logprobs=layout.gather(chunks, [score.logprobs for score in scores]),
        values=layout.gather(chunks, [score.values for score in judged if score.values is not None]),
        reference_logprobs=None if known is None else layout.gather(chunks, known),
    )


@torch.no_grad()
def apply_kl_penalty(tensors: EpisodeTensors, coef: float) -> tuple[EpisodeTensors, Metrics]:
    """The tensors with `coef`·k1 to the reference taken from each counted unit's reward, and the mean k1."""
    if tensors.reference_logprobs is None:
        return tensors, {}
    away = k1(tensors.logprobs, tensors.reference_logprobs).masked_fill(~tensors.mask, 0.0)
    return replace(tensors, rewards=tensors.rewards - coef * away), {"policy/kl": masked_mean(away, tensors.mask)}


def credit(
    tensors: EpisodeTensors, *, method: Method, gamma: float, lam: float, gamma_turn: float, lam_turn: float
) -> Tensor:
    """Advantages (episodes, units) of episodes that all ended by their own rules."""
    rewards, values, mask, turns = tensors.rewards, tensors.values, tensors.mask, tensors.turns
    if method == "monte_carlo":
        return monte_carlo(rewards, values, mask, gamma=gamma)
    nothing = values.new_zeros(len(values))
    if method == "gae":
        never = torch.zeros_like(mask)
        return gae(rewards, values, never, mask, gamma=gamma, lam=lam, last_values=nothing)
    ended = torch.ones(len(values), dtype=torch.bool)
    if method == "turn":
        return turn_gae(
            rewards, values, turns, mask, gamma=gamma_turn, lam=lam_turn, terminated=ended, last_values=nothing
        )
    return bilevel_gae(
        rewards,
        values,
        turns,
        mask,
        gamma_turn=gamma_turn,
        lam_turn=lam_turn,
        gamma_token=gamma,
        lam_token=lam,
        terminated=ended,
        last_values=nothing,
    )


def mismatch_weights(tensors: EpisodeTensors, *, cap: float, parity: float) -> tuple[Tensor, Metrics]:
    """Truncated importance weights (episodes, units), and the raw gap between engine and learner over all units.

    A gap above `parity` nats is no rounding: it raises TokenMismatch.
    """
    weights, gaps = truncated_importance(tensors.logprobs, tensors.engine_logprobs, tensors.turns >= 0, cap=cap)
    check_mismatch(float(gaps["gap_max"]), parity)
    return weights, {f"policy/mismatch_{name}": gap for name, gap in gaps.items()}


def write_lessons(
    chunks: Sequence[Chunk],
    layout: Layout,
    tensors: EpisodeTensors,
    advantages: Tensor,
    weights: Tensor,
    *,
    whitened: bool,
) -> list[Lesson]:
    """Each chunk with its part of the tensors; targets are made before advantages are whitened."""
    returns = (advantages + tensors.values).masked_fill(~tensors.mask, 0.0)
    if whitened:
        advantages = whiten(advantages, tensors.mask, sum_everywhere=all_reduce_sum)
    lessons = []
    for chunk in chunks:
        known = tensors.reference_logprobs
        lessons.append(
            Lesson(
                batch=replace(chunk.batch, advantages=layout.scatter(advantages, chunk)),
                old_logprobs=layout.scatter(tensors.logprobs, chunk),
                old_values=layout.scatter(tensors.values, chunk),
                returns=layout.scatter(returns, chunk),
                weights=layout.scatter(weights, chunk),
                reference_logprobs=None if known is None else layout.scatter(known, chunk),
            )
        )
    return lessons


def critic_metrics(tensors: EpisodeTensors, advantages: Tensor) -> Metrics:
    """How well values foretold what came, before the critic learns from it."""
    returns = advantages + tensors.values
    return {
        "policy/explained_variance": explained_variance(tensors.values, returns, tensors.mask),
        "policy/value": masked_mean(tensors.values, tensors.mask),
        "policy/return": masked_mean(returns, tensors.mask),
    }


def value_loss(
    values: Tensor | None,
    old_values: Tensor,
    returns: Tensor,
    mask: Tensor,
    *,
    kind: Literal["clipped", "huber"],
    clip: float,
) -> tuple[Tensor, Metrics]:
    """The critic's loss over the counted units: clipped to `clip` around the old values, or linear beyond it."""
    assert values is not None, "the critic has no value head"
    if kind == "clipped":
        return clipped_value_loss(values, old_values, returns, mask, clip=clip)
    return huber_value_loss(values, returns, mask, delta=clip)


def mean_over_processes(metrics: Metrics) -> dict[str, float]:
    """Each number's mean over the processes."""
    total = sum_by_name({name: float(value) for name, value in metrics.items()})
    return {name: value / world_size() for name, value in total.items()}
