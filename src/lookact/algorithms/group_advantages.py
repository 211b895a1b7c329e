"""Credit for episodes that start alike: one number a turn, from what the others of the group earned."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np
import torch
from numpy.typing import NDArray

from lookact.data.segments import Segment
from lookact.ops.advantages import leave_one_out
from lookact.types import Episode

Credit = NDArray[np.float32]
"""(turns,) of one episode."""


def episode_credit(episodes: Sequence[Episode]) -> list[Credit]:
    """An episode's return against the mean of the others', the same for all of its turns."""
    returns = torch.tensor([episode.total_reward for episode in episodes])
    advantages = leave_one_out(returns, torch.tensor([episode.group for episode in episodes]))
    return [np.full(len(e.turns), a, dtype=np.float32) for e, a in zip(episodes, advantages.tolist())]


def turn_credit(episodes: Sequence[Episode], *, gamma: float) -> list[Credit]:
    """What was still earned from each turn on, discounted, against the others that were still acting in that turn.

    A turn that no other episode of the group reached has no baseline and gets no credit.
    """
    to_go = [rewards_to_go([turn.reward for turn in episode.turns], gamma) for episode in episodes]
    credit = [np.zeros(len(left), dtype=np.float32) for left in to_go]
    for turn in range(max(map(len, to_go), default=0)):
        acting = [i for i, left in enumerate(to_go) if len(left) > turn]
        groups = torch.tensor([episodes[i].group for i in acting])
        together = (groups[:, None] == groups).sum(1) > 1
        rows = [i for i, others in zip(acting, together.tolist()) if others]
        left = torch.tensor([float(to_go[i][turn]) for i in rows])
        for i, advantage in zip(rows, leave_one_out(left, groups[together]).tolist()):
            credit[i][turn] = advantage
    return credit


def rewards_to_go(rewards: Sequence[float], gamma: float) -> Credit:
    """From each turn on, its reward and gamma times what comes after it."""
    left = np.zeros(len(rewards) + 1, dtype=np.float32)
    for turn in reversed(range(len(rewards))):
        left[turn] = rewards[turn] + gamma * left[turn + 1]
    return left[:-1]


def assign(segments: Sequence[Segment], credit: Credit) -> list[Segment]:
    """An episode's segments with each turn's credit on all of the turn's units."""
    assigned, done = [], 0
    for segment in segments:
        assigned.append(replace(segment, advantages=credit[done + segment.turns]))
        done += int(segment.turns[-1]) + 1
    return assigned
