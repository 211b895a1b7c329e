"""What to ask a judge next: pairs of segments from the replay, chosen by chance or by what an answer would teach."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from lookact.data.replay import Feature, Replay
from lookact.errors import ConfigError, DataError
from lookact.models.reward_model import RewardModel, preference_probabilities
from lookact.ops.preference import disagreement, pair_entropy
from lookact.rollout.samplers.settings import Strategy

SIDE = 16
"""Pixels along a picture's side that k-centre looks at."""


def draw_pairs(replay: Replay, *, length: int, count: int, rng: np.random.Generator) -> NDArray[np.int64]:
    """Slots (count, 2, length) of pairs of different segments, each drawn evenly."""
    starts = replay.segment_starts(length)
    if len(starts) < 2:
        raise DataError(f"the replay holds {len(starts)} segments of {length} steps: act more before asking")
    first = rng.integers(len(starts), size=count)
    second = (first + rng.integers(1, len(starts), size=count)) % len(starts)
    return replay.segments(starts[np.stack([first, second], axis=1)], length)


def features_of(replay: Replay, slots: NDArray[np.int64], kind: Feature) -> NDArray[Any]:
    """What a reward model reads (..., features) of slots (...)."""
    read = replay.slots(slots.reshape(-1)).features(kind)
    return read.reshape(*slots.shape, *read.shape[1:])


def select(
    strategy: Strategy, pairs: NDArray[np.int64], *, count: int, replay: Replay, model: RewardModel, kind: Feature
) -> NDArray[np.int64]:
    """`count` of the candidates (n, 2, length); more than there are gives all."""
    if strategy == "uniform":
        return pairs[:count]
    segments = torch.from_numpy(features_of(replay, pairs, kind))
    if strategy == "k_centre":
        return pairs[k_centre(pair_points(segments, kind), count)]
    if strategy not in ("disagreement", "entropy"):
        raise ConfigError(f"query strategy {strategy!r}: choose uniform, disagreement, entropy or k_centre")
    probabilities = preference_probabilities(model, segments[:, 0], segments[:, 1])
    worth = disagreement(probabilities) if strategy == "disagreement" else pair_entropy(probabilities)
    best: NDArray[np.int64] = worth.argsort(descending=True, stable=True)[:count].numpy()
    return pairs[best]


def pair_points(segments: Tensor, kind: Feature) -> Tensor:
    """A point (n, d) for each pair of segments (n, 2, t, ...); pictures are made small first."""
    if kind == "frame":
        flat = segments.flatten(0, 2).permute(0, 3, 1, 2).float() / 255.0
        return torch.nn.functional.adaptive_avg_pool2d(flat, SIDE).reshape(len(segments), -1)
    spread = segments.flatten(0, 2).std(dim=0, correction=0)
    return (segments / torch.where(spread > 1e-4, spread, 1.0)).flatten(1)


def k_centre(points: Tensor, count: int) -> NDArray[np.int64]:
    """Indices of `count` points (n, d), each the farthest from all before it, the first the farthest from the mean."""
    nearest = torch.linalg.vector_norm(points - points.mean(dim=0), dim=1)
    chosen: list[int] = []
    for _ in range(min(count, len(points))):
        place = int(nearest.argmax())
        distance = torch.linalg.vector_norm(points - points[place], dim=1)
        nearest = distance if not chosen else torch.minimum(nearest, distance)
        chosen.append(place)
        nearest[chosen] = -1.0
    return np.array(chosen, dtype=np.int64)
