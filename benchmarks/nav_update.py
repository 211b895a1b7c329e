"""The update: one sequence per episode, beside one sequence per turn that holds all turns before it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np
import torch
from torch import Tensor

from benchmarks.timing import Facts, Work
from benchmarks.walks import Load, RecordedWalk, make_specs, make_walks, open_checkpoint
from lookact.batch import Batch, TokenInputs
from lookact.data.packing import Segment, micro_batches, to_segments
from lookact.models.vlm import kernels
from lookact.models.vlm.policy import ChatVLM
from lookact.ops.advantages import leave_one_out
from lookact.ops.losses import reinforce
from lookact.ops.masked import Metrics
from lookact.rollout.collect import collect
from lookact.rollout.samplers.hf import HFSampler
from lookact.training.optim import NonFiniteGuard, accumulate, build_adamw, clip_and_step
from lookact.types import Episode


def by_episode(folder: Path, load: Load) -> Work:
    """LookAct's way."""
    chat = open_checkpoint(folder)
    return updates(chat, credited(sample_episodes(chat, load)), load)


def by_turn(folder: Path, load: Load) -> Work:
    """Every turn is a sample of its own, as if the conversation so far were its prompt."""
    chat = open_checkpoint(folder)
    segments = credited(sample_episodes(chat, load))
    return updates(chat, [turn for segment in segments for turn in split_turns(segment, load.turns)], load)


def whole_step(folder: Path, load: Load) -> Work:
    """Rollout, credit, update and optimiser step, as the nav-rloo recipe does them."""
    chat = open_checkpoint(folder)
    actor, walks, plans = HFSampler(chat, load.sampling), make_walks(load), make_specs(load)
    optimizer, guard = build_adamw({"policy": chat}, lr=1e-9), NonFiniteGuard()

    def work() -> Facts:
        episodes = collect(plans, [RecordedWalk(walks) for _ in plans], actor)
        segments = credited(episodes)
        loss = learn(chat, segments, load)
        clip_and_step(optimizer, chat.parameters(), max_norm=1.0, guard=guard, loss=loss)
        return {
            "episodes": len(episodes),
            "turns": sum(len(episode.turns) for episode in episodes),
            "sampled_tokens": sum(len(segment.mask) for segment in segments),
        }

    return work


def stock_step(folder: Path, load: Load) -> Work:
    """`whole_step` by Hugging Face's own modules."""
    step = whole_step(folder, load)

    def work() -> Facts:
        kernels.ENABLED = False
        try:
            return step()
        finally:
            kernels.ENABLED = True

    return work


def updates(chat: ChatVLM, segments: Sequence[Segment], load: Load) -> Work:
    """Forward and backward over all segments."""

    def work() -> Facts:
        chat.zero_grad()
        learn(chat, segments, load)
        return {
            "sequences": len(segments),
            "tokens": sum(len(segment.ids) for segment in segments),
            "units": sum(int(segment.mask.sum()) for segment in segments),
        }

    return work


def learn(chat: ChatVLM, segments: Sequence[Segment], load: Load) -> float:
    """Gradients of REINFORCE's mean loss over all units."""

    def loss(batch: Batch[TokenInputs]) -> tuple[Tensor, Metrics]:
        assert isinstance(batch.inputs, TokenInputs)
        return reinforce(chat.evaluate(batch.inputs).logprobs, batch.advantages, batch.mask)

    chat.train()
    total, _ = accumulate(micro_batches(chat, segments, load.token_budget), loss, lambda batch: batch.mask.sum())
    return total


def sample_episodes(chat: ChatVLM, load: Load) -> list[Episode]:
    """What the policy does on the walks; the same on every side, by the plans' seeds."""
    walks, plans = make_walks(load), make_specs(load)
    return collect(plans, [RecordedWalk(walks) for _ in plans], HFSampler(chat, load.sampling))


def credited(episodes: Sequence[Episode]) -> list[Segment]:
    """One segment an episode, every sampled token with the episode's leave-one-out advantage."""
    returns = torch.tensor([episode.total_reward for episode in episodes])
    advantages = leave_one_out(returns, torch.tensor([episode.group for episode in episodes]))
    return [
        replace(segment, advantages=np.full(len(segment.mask), advantage, dtype=np.float32))
        for episode, advantage in zip(episodes, advantages.tolist())
        for segment in to_segments(episode, loss_on="reply")
    ]


def split_turns(segment: Segment, turns: int) -> list[Segment]:
    """The same units in one segment a turn, each with all that came before it; one image a turn."""
    parts = []
    for turn in range(turns):
        own = segment.turns == turn
        parts.append(
            replace(
                segment,
                ids=segment.ids[: segment.positions[own][-1] + 1],
                positions=segment.positions[own],
                mask=segment.mask[own],
                logprobs=segment.logprobs[own],
                turns=segment.turns[own],
                rewards=segment.rewards[own],
                images=segment.images[: turn + 1],
                advantages=segment.advantages[own],
            )
        )
    return parts
