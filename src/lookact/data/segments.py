"""Episodes of a token policy as training segments: one token stream per unbroken context."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from lookact.errors import DataError
from lookact.types import Episode, Image, Turn


@dataclass(frozen=True)
class Segment:
    """Prompt, vision and sampled tokens of consecutive turns, with the sampled ones marked as units."""

    ids: NDArray[np.int64]
    """(n,)"""
    positions: NDArray[np.int64]
    """(u,) where in `ids` each sampled token stands."""
    mask: NDArray[np.bool_]
    """(u,) True where a unit counts."""
    logprobs: NDArray[np.float32]
    """(u,) as sampled."""
    turns: NDArray[np.int64]
    """(u,) turn index within the segment."""
    rewards: NDArray[np.float32]
    """(u,) a turn's reward, on its last unit."""
    images: tuple[Image, ...]
    episode_return: float
    group: int
    terminated: bool
    advantages: NDArray[np.float32]
    """(u,) zeros until credit is given."""


def cut(episode: Episode, *, units: str = "action") -> list[Segment]:
    """One segment for every unbroken context of the episode; `units` says which sampled tokens count.

    "action": the tokens of the JSON action, and the one that ends the reply: left untrained, it drifts away, and
    replies grow. "reply": all sampled tokens.
    """
    if units not in ("action", "reply"):
        raise DataError(f"units is {units!r}: choose 'action' or 'reply'")
    runs: list[list[Turn]] = []
    for turn in episode.turns:
        if turn.decision.fresh or not runs:
            runs.append([])
        runs[-1].append(turn)
    return [_segment(run, episode, units, last=run is runs[-1]) for run in runs]


def _segment(run: Sequence[Turn], episode: Episode, units: str, *, last: bool) -> Segment:
    ids: list[NDArray[np.int64]] = []
    positions, masks, turns, rewards = [], [], [], []
    length = 0
    for index, turn in enumerate(run):
        decision = turn.decision
        if decision.token_ids is None or decision.prompt_ids is None:
            raise DataError(f"episode {episode.id} holds no token ids: it was not made by a token policy")
        n = len(decision.token_ids)
        start = length + len(decision.prompt_ids)
        ids += [decision.prompt_ids, decision.token_ids]
        positions.append(np.arange(start, start + n))
        # no action found: the whole reply was the mistake, so the whole reply takes the blame
        whole = units == "reply" or decision.mask_method == "failed"
        masks.append(np.ones(n, dtype=bool) if whole else np.append(decision.mask[:-1], decision.mask.any()))
        turns.append(np.full(n, index))
        rewards.append(np.append(np.zeros(n - 1, dtype=np.float32), np.float32(turn.reward)))
        length = start + n
    return Segment(
        ids=np.concatenate(ids),
        positions=np.concatenate(positions),
        mask=np.concatenate(masks),
        logprobs=np.concatenate([turn.decision.logprobs for turn in run]),
        turns=np.concatenate(turns),
        rewards=np.concatenate(rewards),
        images=tuple(image for turn in run for image in turn.observation.images.values()),
        episode_return=episode.total_reward,
        group=episode.group,
        terminated=last and episode.terminated,
        advantages=np.zeros(sum(map(len, turns)), dtype=np.float32),
    )


def buckets(lengths: Iterable[int], *, budget: int) -> list[list[int]]:
    """Indices in groups of similar length whose padded size stays within `budget` tokens (at least one each)."""
    sizes = list(lengths)
    groups: list[list[int]] = []
    for index in sorted(range(len(sizes)), key=lambda i: (-sizes[i], i)):
        # sorted from long to short, so a group's first row sets its padded width
        if groups and (len(groups[-1]) + 1) * sizes[groups[-1][0]] <= budget:
            groups[-1].append(index)
        else:
            groups.append([index])
    return groups
