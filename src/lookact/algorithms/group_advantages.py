"""Advantages of episodes that share a start: one number a turn, from the returns of the group's others."""

from __future__ import annotations

import zlib
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Literal

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from lookact.data.packing import Segment, to_segments
from lookact.ops.advantages import anchor_groups, group_centre, group_normalise, leave_one_out, zero_variance_groups
from lookact.training.distributed import all_reduce_sum
from lookact.types import Episode, Observation

Advantages = NDArray[np.float32]
"""(turns,) of one episode."""
Credit = Literal["episode", "turn", "anchor"]
Keys = Callable[[Episode], list[int]]
"""What each turn of an episode is compared by: its number, or the state it was taken in."""
Baseline = Callable[[Tensor, Tensor], Tensor]
"""From returns (b,) and group ids (b,) to advantages (b,)."""
BASELINES: dict[str, Baseline] = {
    "leave_one_out": leave_one_out,
    "group_mean": group_centre,
    "group_normalised": group_normalise,
}
"""RLOO's, Dr. GRPO's and GRPO's."""


def drop_zero_variance_groups(
    episodes: Sequence[Episode], *, credit: Credit = "episode", gamma: float = 1.0
) -> tuple[list[Episode], float]:
    """The episodes that carry a gradient, and the share of all processes' episodes that do not.

    Failed episodes are left out, and so are groups in which nothing credited differs: the episodes' returns, the
    rewards-to-go of each turn, or returns and rewards-to-go in each state.
    """
    whole = [episode for episode in episodes if episode.error is None]
    returns = torch.tensor([episode.total_reward for episode in whole])
    groups = torch.tensor([episode.group for episode in whole])
    useful = ~zero_variance_groups(returns, groups)
    if credit != "episode" and any(episode.turns for episode in whole):
        to_go, ids, owners = _by_turn(whole, gamma, _KEYS[credit])
        differing = torch.isin(groups, owners[~zero_variance_groups(to_go, ids)])
        useful = differing if credit == "turn" else useful | differing
    seen = max(1.0, all_reduce_sum(len(episodes)))
    dropped = 1.0 - all_reduce_sum(float(useful.sum())) / seen
    return [episode for episode, keep in zip(whole, useful.tolist()) if keep], dropped


def count_groups(episodes: Sequence[Episode]) -> int:
    """Groups of the episodes of all processes; each is in one process."""
    return int(all_reduce_sum(len({episode.group for episode in episodes})))


def episode_advantages(episodes: Sequence[Episode], baseline: Baseline = leave_one_out) -> list[Advantages]:
    """An episode's return against its group's baseline, the same for all of its turns."""
    returns = torch.tensor([episode.total_reward for episode in episodes])
    advantages = baseline(returns, torch.tensor([episode.group for episode in episodes]))
    return [np.full(len(e.turns), a, dtype=np.float32) for e, a in zip(episodes, advantages.tolist())]


def turn_advantages(
    episodes: Sequence[Episode], *, gamma: float, baseline: Baseline = leave_one_out
) -> list[Advantages]:
    """The discounted reward-to-go of each turn against the group's others that were still acting then.

    A turn that no other episode of the group reached has no baseline and an advantage of 0.
    """
    return _compared(episodes, gamma, baseline, _turn_numbers)


def anchor_advantages(
    episodes: Sequence[Episode], *, gamma: float, baseline: Baseline = leave_one_out
) -> list[Advantages]:
    """GiGPO (arXiv:2505.10978, eq. 8): an episode's advantage plus each turn's among the turns taken in its state.

    The state is what the environment shows (its images, or the state vector): turns of one group that saw the same are
    compared by their discounted rewards-to-go. A state that was seen once adds nothing.
    """
    steps = _compared(episodes, gamma, baseline, _anchors)
    return [whole + step for whole, step in zip(episode_advantages(episodes, baseline), steps)]


def anchor_of(observation: Observation) -> int:
    """A number for what is shown, equal for equal images and states; the text is left out, since it counts turns."""
    shown = [*observation.images.values(), *([] if observation.state is None else [observation.state])]
    return zlib.crc32(b"".join(np.ascontiguousarray(part).tobytes() for part in shown))


def _turn_numbers(episode: Episode) -> list[int]:
    return list(range(len(episode.turns)))


def _anchors(episode: Episode) -> list[int]:
    return [anchor_of(turn.observation) for turn in episode.turns]


_KEYS: dict[Credit, Keys] = {"turn": _turn_numbers, "anchor": _anchors}


def _by_turn(episodes: Sequence[Episode], gamma: float, keys: Keys) -> tuple[Tensor, Tensor, Tensor]:
    """Of all turns (n,): rewards-to-go, an id for each group and key, and the group."""
    to_go = [rewards_to_go([turn.reward for turn in episode.turns], gamma) for episode in episodes]
    groups = torch.tensor([episode.group for episode in episodes for _ in episode.turns])
    ids = anchor_groups(groups, torch.tensor([key for episode in episodes for key in keys(episode)]))
    return torch.from_numpy(np.concatenate(to_go)), ids, groups


def _compared(episodes: Sequence[Episode], gamma: float, baseline: Baseline, keys: Keys) -> list[Advantages]:
    """Rewards-to-go of all turns, each against the turns of its group with the same key; one alone gets 0."""
    if not any(episode.turns for episode in episodes):
        return [np.zeros(0, dtype=np.float32) for _ in episodes]
    to_go, ids, _ = _by_turn(episodes, gamma, keys)
    together = torch.bincount(ids)[ids] > 1
    advantages = torch.zeros(len(ids))
    advantages[together] = baseline(to_go[together], ids[together])
    return [part.numpy() for part in torch.split(advantages, [len(episode.turns) for episode in episodes])]


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
