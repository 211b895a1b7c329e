"""Advantages of episodes that share a start: one number a turn, from the returns of the group's others."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np
import torch
from numpy.typing import NDArray

from lookact.data.packing import Segment, to_segments
from lookact.ops.advantages import leave_one_out, zero_variance_groups
from lookact.training.distributed import all_reduce_sum
from lookact.types import Episode

Advantages = NDArray[np.float32]
"""(turns,) of one episode."""


def drop_zero_variance_groups(episodes: Sequence[Episode]) -> tuple[list[Episode], float]:
    """The episodes that carry a gradient, and the share of all processes' episodes that do not.

    Failed episodes are left out, and so are groups whose returns are all equal.
    """
    whole = [episode for episode in episodes if episode.error is None]
    returns = torch.tensor([episode.total_reward for episode in whole])
    groups = torch.tensor([episode.group for episode in whole])
    useful = ~zero_variance_groups(returns, groups)
    seen = max(1.0, all_reduce_sum(len(episodes)))
    dropped = 1.0 - all_reduce_sum(float(useful.sum())) / seen
    return [episode for episode, keep in zip(whole, useful.tolist()) if keep], dropped


def episode_advantages(episodes: Sequence[Episode]) -> list[Advantages]:
    """An episode's return minus the mean of the others', the same for all of its turns."""
    returns = torch.tensor([episode.total_reward for episode in episodes])
    advantages = leave_one_out(returns, torch.tensor([episode.group for episode in episodes]))
    return [np.full(len(e.turns), a, dtype=np.float32) for e, a in zip(episodes, advantages.tolist())]


def turn_advantages(episodes: Sequence[Episode], *, gamma: float) -> list[Advantages]:
    """The discounted reward-to-go of each turn minus the mean of the group's others that were still acting then.

    A turn that no other episode of the group reached has no baseline and an advantage of 0.
    """
    to_go = [rewards_to_go([turn.reward for turn in episode.turns], gamma) for episode in episodes]
    advantages = [np.zeros(len(left), dtype=np.float32) for left in to_go]
    for turn in range(max(map(len, to_go), default=0)):
        acting = [i for i, left in enumerate(to_go) if len(left) > turn]
        groups = torch.tensor([episodes[i].group for i in acting])
        together = (groups[:, None] == groups).sum(1) > 1
        rows = [i for i, others in zip(acting, together.tolist()) if others]
        left = torch.tensor([float(to_go[i][turn]) for i in rows])
        for i, advantage in zip(rows, leave_one_out(left, groups[together]).tolist()):
            advantages[i][turn] = advantage
    return advantages


def rewards_to_go(rewards: Sequence[float], gamma: float) -> Advantages:
    """From each turn on, its reward and gamma times what comes after it."""
    left = np.zeros(len(rewards) + 1, dtype=np.float32)
    for turn in reversed(range(len(rewards))):
        left[turn] = rewards[turn] + gamma * left[turn + 1]
    return left[:-1]


def scale_advantages(advantages: Sequence[Advantages]) -> list[Advantages]:
    """Divided by their root mean square over the turns of all processes."""
    count = max(1.0, all_reduce_sum(sum(map(len, advantages))))
    deviation = (all_reduce_sum(float(sum(np.square(turns).sum() for turns in advantages))) / count) ** 0.5
    return [turns / (deviation + 1e-8) for turns in advantages]


def pack(episodes: Sequence[Episode], advantages: Sequence[Advantages], *, loss_on: str) -> list[Segment]:
    """Training segments with each turn's advantage on all of the turn's units."""
    return [
        segment
        for episode, turns in zip(episodes, advantages)
        for segment in assign(to_segments(episode, loss_on=loss_on), turns)
    ]


def assign(segments: Sequence[Segment], advantages: Advantages) -> list[Segment]:
    """An episode's segments with their turns' advantages."""
    assigned, done = [], 0
    for segment in segments:
        assigned.append(replace(segment, advantages=advantages[done + segment.turns]))
        done += int(segment.turns[-1]) + 1
    return assigned
