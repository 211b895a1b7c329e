"""PPO over the units of multi-turn episodes: pack, score, advantages, and back to micro-batches.

Advantages are worked out on (episodes, units), because an episode whose context was rebuilt is several segments in
several micro-batches while its rewards belong together. Old log-probabilities are the learner's own, scored before the
first gradient step; those that the engine sampled with enter only through importance weights.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Literal

import numpy as np
import torch
from torch import Tensor

from lookact.batch import Batch, TokenInputs
from lookact.data.packing import Encodes, Segment, numbered_batches, to_segments
from lookact.models.vlm.policy import ChatVLM
from lookact.models.vlm.reference import Reference
from lookact.ops.advantages import bilevel_gae, gae, monte_carlo, turn_gae
from lookact.ops.losses import explained_variance, k1
from lookact.ops.masked import Metrics, masked_mean, whiten
from lookact.ops.mismatch import MismatchGate, MismatchLimits, importance_weights
from lookact.training.distributed import all_reduce_sum, in_step
from lookact.types import Episode

Method = Literal["monte_carlo", "gae", "turn", "bilevel"]
PADDING = -1


@dataclass(frozen=True)
class SegmentBatch:
    """Some of a step's segments, packed."""

    numbers: tuple[int, ...]
    """Which segment each row is."""
    batch: Batch[TokenInputs]


@dataclass(frozen=True)
class Layout:
    """Where each segment's units stand among those of its episode."""

    rows: tuple[int, ...]
    """A segment's episode."""
    starts: tuple[int, ...]
    """Units of the episode before it."""
    turns: tuple[int, ...]
    """Turns of the episode before it."""
    lengths: tuple[int, ...]

    @property
    def shape(self) -> tuple[int, int]:
        """Episodes, and the units of the longest."""
        ends = (start + length for start, length in zip(self.starts, self.lengths))
        return max(self.rows, default=-1) + 1, max(ends, default=0)

    def gather(self, chunks: Sequence[SegmentBatch], tensors: Sequence[Tensor], *, fill: float = 0.0) -> Tensor:
        """Units (b, u) of each chunk as one (episodes, units), on the CPU; `fill` where there is no unit."""
        dtype = tensors[0].dtype if tensors else torch.float32
        joined = torch.full(self.shape, fill, dtype=dtype)
        for chunk, tensor in zip(chunks, tensors):
            for row, number in enumerate(chunk.numbers):
                joined[self.rows[number], self._span(number)] = tensor[row, : self.lengths[number]].cpu()
        return joined

    def gather_turns(self, chunks: Sequence[SegmentBatch]) -> Tensor:
        """(episodes, units) each unit's turn in its episode, -1 on padding."""
        ahead = [torch.tensor([self.turns[number] for number in chunk.numbers])[:, None] for chunk in chunks]
        counted = [chunk.batch.turns.cpu() + before for chunk, before in zip(chunks, ahead)]
        return self.gather(chunks, counted, fill=PADDING)

    def scatter(self, joined: Tensor, chunk: SegmentBatch) -> Tensor:
        """A chunk's part (b, u) of (episodes, units), on the chunk's device; 0 on padding."""
        part = torch.zeros(chunk.batch.mask.shape, dtype=joined.dtype)
        for row, number in enumerate(chunk.numbers):
            part[row, : self.lengths[number]] = joined[self.rows[number], self._span(number)]
        return part.to(chunk.batch.mask.device)

    def _span(self, number: int) -> slice:
        return slice(self.starts[number], self.starts[number] + self.lengths[number])


def lay_out(episodes: Sequence[Sequence[Segment]]) -> Layout:
    """The places of segments numbered through from the first episode's first."""
    rows, starts, turns, lengths = [], [], [], []
    for row, segments in enumerate(episodes):
        units = turn = 0
        for segment in segments:
            rows.append(row)
            starts.append(units)
            turns.append(turn)
            lengths.append(len(segment.mask))
            units, turn = units + len(segment.mask), turn + int(segment.turns[-1]) + 1
    return Layout(tuple(rows), tuple(starts), tuple(turns), tuple(lengths))


def make_minibatches(
    policy: Encodes, segments: Sequence[Segment], order: Sequence[int], *, parts: int, token_budget: int
) -> list[list[SegmentBatch]]:
    """The segments in `parts` minibatches of about equal size, each as micro-batches within the token budget."""
    minibatches = []
    for part in np.array_split(np.array(order, dtype=int), parts):
        batches = numbered_batches(policy, [segments[number] for number in part], token_budget)
        minibatches.append([SegmentBatch(tuple(part[rows].tolist()), batch) for rows, batch in batches])
    return minibatches


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
class MicroBatch:
    """A micro-batch with all that PPO's loss needs from before the first gradient step: (b, u), constants."""

    batch: Batch[TokenInputs]
    """With its advantages."""
    old_logprobs: Tensor
    old_values: Tensor
    returns: Tensor
    """The values' targets."""
    weights: Tensor
    """For engine and learner differing."""
    reference_logprobs: Tensor | None


def pack_minibatches(
    episodes: Sequence[Episode],
    policy: ChatVLM,
    rng: np.random.Generator,
    *,
    minibatch_size: int,
    loss_on: str,
    token_budget: int,
) -> tuple[Layout, list[list[SegmentBatch]]]:
    """The episodes' segments in random minibatches of about `minibatch_size` over all processes."""
    rows = [to_segments(episode, loss_on=loss_on) for episode in episodes]
    segments = [segment for row in rows for segment in row]
    # all processes must take the same number of gradient steps
    parts = max(1, round(all_reduce_sum(len(segments)) / minibatch_size))
    order = rng.permutation(len(segments)).tolist()
    minibatches = make_minibatches(policy, segments, order, parts=parts, token_budget=token_budget)
    return lay_out(rows), minibatches


@torch.no_grad()
def score_units(
    layout: Layout,
    minibatches: Sequence[Sequence[SegmentBatch]],
    policy: ChatVLM,
    critic: ChatVLM,
    reference: Reference | None,
    filters: Mapping[str, Any],
) -> EpisodeTensors:
    """Log-probs, values and reference log-probs of all units with the weights that sampled them."""
    chunks = [chunk for minibatch in minibatches for chunk in minibatch]
    scores, judged, held = [], [], []
    for chunk, count in in_step([(chunk, 1.0) for chunk in chunks], policy):
        score = policy.evaluate(chunk.batch.inputs, **filters)
        judgement = score if critic is policy else critic.evaluate(chunk.batch.inputs, **filters)
        known = None if reference is None else reference.evaluate(chunk.batch.inputs, **filters).logprobs
        # a chunk that is repeated to keep step with other processes counts nothing
        if count:
            scores.append(score)
            judged.append(judgement)
            held += [] if known is None else [known]
    return EpisodeTensors(
        mask=layout.gather(chunks, [chunk.batch.mask for chunk in chunks]).bool(),
        turns=layout.gather_turns(chunks),
        rewards=layout.gather(chunks, [chunk.batch.rewards for chunk in chunks]),
        engine_logprobs=layout.gather(chunks, [chunk.batch.logprobs for chunk in chunks]),
        logprobs=layout.gather(chunks, [score.logprobs for score in scores]),
        values=layout.gather(chunks, [score.values for score in judged if score.values is not None]),
        reference_logprobs=None if reference is None else layout.gather(chunks, held),
    )


@torch.no_grad()
def apply_kl_penalty(tensors: EpisodeTensors, coef: float) -> tuple[EpisodeTensors, Metrics]:
    """The tensors with `coef`·k1 to the reference taken from each counted unit's reward, and the mean k1."""
    if tensors.reference_logprobs is None:
        return tensors, {}
    away = k1(tensors.logprobs, tensors.reference_logprobs).masked_fill(~tensors.mask, 0.0)
    return replace(tensors, rewards=tensors.rewards - coef * away), {"policy/kl": masked_mean(away, tensors.mask)}


def token_advantages(
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


def mismatch_weights(tensors: EpisodeTensors, *, limits: MismatchLimits, **importance: Any) -> tuple[Tensor, Metrics]:
    """Importance weights (episodes, units), and the raw gap between engine and learner over all units.

    Outliers weigh nothing; more of them than rounding explains raise TokenMismatch. `importance` is what
    `importance_weights` takes.
    """
    sampled, gate = tensors.turns >= 0, MismatchGate(limits)
    agree = gate.agree(tensors.logprobs, tensors.engine_logprobs, sampled)
    judged = {name: torch.tensor(value) for name, value in gate.judge(all_reduce_sum).items()}
    weights, gaps = importance_weights(tensors.logprobs, tensors.engine_logprobs, sampled, **importance)
    return weights * agree, judged | {f"policy/mismatch_{name}": gap for name, gap in gaps.items()}


def scatter_advantages(
    layout: Layout,
    minibatches: Sequence[Sequence[SegmentBatch]],
    tensors: EpisodeTensors,
    advantages: Tensor,
    weights: Tensor,
    *,
    whitened: bool,
) -> list[list[MicroBatch]]:
    """Each micro-batch with its part of the tensors; value targets are made before advantages are whitened."""
    returns = (advantages + tensors.values).masked_fill(~tensors.mask, 0.0)
    if whitened:
        advantages = whiten(advantages, tensors.mask, sum_everywhere=all_reduce_sum)
    known = tensors.reference_logprobs

    def fill(chunk: SegmentBatch) -> MicroBatch:
        return MicroBatch(
            batch=replace(chunk.batch, advantages=layout.scatter(advantages, chunk)),
            old_logprobs=layout.scatter(tensors.logprobs, chunk),
            old_values=layout.scatter(tensors.values, chunk),
            returns=layout.scatter(returns, chunk),
            weights=layout.scatter(weights, chunk),
            reference_logprobs=None if known is None else layout.scatter(known, chunk),
        )

    return [[fill(chunk) for chunk in minibatch] for minibatch in minibatches]


def critic_metrics(tensors: EpisodeTensors, advantages: Tensor) -> Metrics:
    """Explained variance and means of values and returns, before the critic's update."""
    returns = advantages + tensors.values
    return {
        "policy/explained_variance": explained_variance(tensors.values, returns, tensors.mask),
        "policy/value": masked_mean(tensors.values, tensors.mask),
        "policy/return": masked_mean(returns, tensors.mask),
    }
