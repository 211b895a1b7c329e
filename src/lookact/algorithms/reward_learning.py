"""Reward learning from preferences (PEBBLE, arXiv:2106.05091): query selection, labels, reward ensemble, relabel."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal, Protocol

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from lookact.data.pictures import decode_picture
from lookact.data.preferences import PreferenceStore
from lookact.data.replay import Feature, Replay, Slots
from lookact.errors import ConfigError, DataError
from lookact.judges.teachers import Teacher
from lookact.models.reward_model import RewardModel, preference_probabilities, segment_rewards
from lookact.ops.curiosity import knn_entropy_reward
from lookact.ops.preference import bradley_terry, disagreement, pair_entropy
from lookact.protocols import Judge, Stateful
from lookact.seeding import numpy_rng
from lookact.training.optim import NonFiniteGuard, clip_and_step
from lookact.types import Preference

Strategy = Literal["uniform", "disagreement", "entropy", "k_centre"]
Floats = NDArray[np.float32]
NEIGHBOUR = 6
"""Of the exploration bonus; a state may be its own nearest neighbour."""
SIDE = 16
"""Pixels per side of the downsampled images that k-centre compares."""
FRAMES_AT_ONCE = 8
"""That a CPU relabels: 2.4 times faster a frame than 1024 at once."""
WORST, BEST = 0.01, 0.999
"""Quantiles of a replay's rewards that are levels 0 and 1 of a sharpened reward."""


def draw_pairs(replay: Replay, *, length: int, count: int, rng: np.random.Generator) -> NDArray[np.int64]:
    """Slots (count, 2, length) of pairs of different segments, each drawn uniformly."""
    starts = replay.segment_starts(length)
    if len(starts) < 2:
        raise DataError(f"the replay holds {len(starts)} segments of {length} steps: act more before asking")
    first = rng.integers(len(starts), size=count)
    second = (first + rng.integers(1, len(starts), size=count)) % len(starts)
    return replay.segments(starts[np.stack([first, second], axis=1)], length)


def select_pairs(
    strategy: Strategy, pairs: NDArray[np.int64], *, count: int, replay: Replay, model: RewardModel, kind: Feature
) -> NDArray[np.int64]:
    """`count` of the candidates (n, 2, length), by a query-selection strategy; more than there are gives all."""
    if strategy == "uniform":
        return pairs[:count]
    segments = torch.from_numpy(replay.features(pairs, kind)).to(model.device)
    if strategy == "k_centre":
        return pairs[k_centre(pair_points(segments, kind), count)]
    if strategy not in ("disagreement", "entropy"):
        raise ConfigError(f"query strategy {strategy!r}: choose uniform, disagreement, entropy or k_centre")
    probabilities = preference_probabilities(model, segments[:, 0], segments[:, 1])
    scores = disagreement(probabilities) if strategy == "disagreement" else pair_entropy(probabilities)
    best: NDArray[np.int64] = scores.argsort(descending=True, stable=True)[:count].numpy()
    return pairs[best]


def pair_points(segments: Tensor, kind: Feature) -> Tensor:
    """A point (n, d) for each pair of segments (n, 2, t, ...); images are downsampled first."""
    if kind == "frame":
        flat = segments.flatten(0, 2).permute(0, 3, 1, 2).float() / 255.0
        return torch.nn.functional.adaptive_avg_pool2d(flat, SIDE).reshape(len(segments), -1)
    spread = segments.flatten(0, 2).std(dim=0, correction=0)
    return (segments / torch.where(spread > 1e-4, spread, 1.0)).flatten(1)


def k_centre(points: Tensor, count: int) -> NDArray[np.int64]:
    """Greedy k-centre: indices of `count` points (n, d), each the farthest from all before; the first from the mean."""
    nearest = torch.linalg.vector_norm(points - points.mean(dim=0), dim=1)
    chosen: list[int] = []
    for _ in range(min(count, len(points))):
        place = int(nearest.argmax())
        distance = torch.linalg.vector_norm(points - points[place], dim=1)
        nearest = distance if not chosen else torch.minimum(nearest, distance)
        chosen.append(place)
        nearest[chosen] = -1.0
    return np.array(chosen, dtype=np.int64)


@torch.no_grad()
def state_entropy_rewards(states: Tensor, pool: Tensor) -> Tensor:
    """PEBBLE's exploration bonus (b,), standardised: log distance of states (b, s) to their k-th nearest of a pool."""
    spread = pool.std(dim=0, correction=0)
    # centimetres must count beside metres, and what never changes must not count at all
    scale = torch.where(spread > 1e-4, 1.0 / spread.clamp(min=1e-4), 0.0)
    novelty = knn_entropy_reward(states * scale, pool * scale, NEIGHBOUR)
    return (novelty - novelty.mean()) / novelty.std(correction=0).clamp(min=1e-3)


@dataclass(frozen=True)
class Query:
    """Pairs of segments as a judge sees them."""

    frames: NDArray[np.uint8] | None
    """(n, 2, h, t * w, 3) all steps of each segment, side by side."""
    true_rewards: NDArray[np.float64]
    """(n, 2, t) for simulated teachers, and for the log."""

    @classmethod
    def of(cls, replay: Replay, pairs: NDArray[np.int64], *, shown: bool) -> Query:
        """What the replay holds of pairs of slots (n, 2, t); images only for a judge to whom they are shown."""
        scores = replay.slots(pairs.reshape(-1)).scores.reshape(pairs.shape).astype(np.float64)
        if not shown:
            return cls(None, scores)
        if replay.has_pictures:
            frames = np.stack([decode_picture(file) for file in replay.pictures(pairs.reshape(-1))])
        else:
            frames = replay.features(pairs.reshape(-1), "frame")
        frames = frames.reshape(*pairs.shape, *frames.shape[1:])
        return cls(np.concatenate(list(frames.transpose(2, 0, 1, 3, 4, 5)), axis=3), scores)


def shown_steps(pairs: NDArray[np.int64], count: int) -> NDArray[np.int64]:
    """`count` steps (n, 2, count) of each segment (n, 2, t), evenly spaced, its last among them."""
    steps = pairs.shape[-1]
    return pairs[..., (steps * np.arange(1, count + 1)) // count - 1]


Labeller = Callable[[Query, int], list[int]]
"""Labels (n,) of a query in the feedback round of this number: 0 or 1, the better of the two, or -1."""
Note = Callable[[int, Sequence[Preference], NDArray[np.float64]], None]
"""Takes the number of a feedback round, its preferences and their true scores (n, 2)."""


def vlm_labeller(judge: Judge, goal: str, note: Note | None = None) -> Labeller:
    """Labels of a judge that compares images; `note` is told of each round's."""

    def label(query: Query, number: int) -> list[int]:
        assert query.frames is not None
        preferences = judge.compare([(one, two) for one, two in query.frames], goal)
        if note is not None:
            note(number, preferences, query.true_rewards.sum(axis=2))
        return [preference.verdict for preference in preferences]

    return label


def teacher_labeller(teacher: Teacher, *, seed: int) -> Labeller:
    """Labels of a simulated teacher, who knows the true rewards."""

    def label(query: Query, number: int) -> list[int]:
        # poor or alike is relative to the span of rewards, wherever their zero lies
        rewards = query.true_rewards - query.true_rewards.min()
        margin = float(rewards.sum(axis=2).mean())
        verdicts, _ = teacher.prefer(rewards[:, 0], rewards[:, 1], seed=seed + number, margin=margin)
        return [int(verdict) for verdict in verdicts]

    return label


def label_accuracy(
    labels: NDArray[np.int64], first: NDArray[np.float64], second: NDArray[np.float64]
) -> tuple[int, int]:
    """How many labels (n,) agree with the true scores (n,), and how many were decided on pairs that have an order."""
    decided = (labels >= 0) & (first != second)
    return int((labels == (second > first))[decided].sum()), int(decided.sum())


def round_size(schedule: str, *, average: int, total: int, asked: int, done: float) -> int:
    """Pairs of the next feedback round, after `asked` of `total` pairs and the fraction `done` of the run."""
    weight = {"uniform": 1.0, "decaying": 2.0 * (1.0 - done), "growing": 2.0 * done}[schedule]
    return max(0, min(max(1, round(weight * average)), total - asked))


class RewardLearner:
    """Fits a reward ensemble to preferences (arXiv:1706.03741); a Stateful, the weights aside."""

    def __init__(self, model: RewardModel, *, lr: float = 3e-4, weight_decay: float = 0.0) -> None:
        self.model, self.fits = model, 0
        self.optimizer = torch.optim.AdamW(model.parameters(), lr=lr, weight_decay=weight_decay, fused=True)
        self.guard = NonFiniteGuard()

    def fit(
        self,
        store: PreferenceStore,
        *,
        epochs: int,
        batch_size: int,
        target_accuracy: float,
        seed: int,
        bootstrap: bool = False,
    ) -> dict[str, float]:
        """Up to `epochs` epochs of Bradley-Terry; ends after one whose accuracy reached `target_accuracy`.

        Every member sees the pairs in an order of its own, or a bootstrap resample of them.
        """
        if not len(store):
            raise DataError("no preference to learn from: the judge has answered nothing but -1")
        self.fits += 1
        metrics: dict[str, float] = {}
        for epoch in range(1, epochs + 1):
            order = orders(self.model.members, len(store), numpy_rng(seed, "reward", self.fits, epoch), bootstrap)
            sums = np.zeros(3)
            for part in torch.split(order, batch_size, dim=1):
                sums += np.array(self._step(store, part)) * part.shape[1] / len(store)
            metrics = {
                "loss/reward": sums[0],
                "reward/accuracy": sums[1],
                "reward/gap": sums[2],
                "reward/epochs": epoch,
            }
            if metrics["reward/accuracy"] >= target_accuracy:
                break
        return {name: float(value) for name, value in metrics.items()}

    def state_dict(self) -> dict[str, Any]:
        return {"fits": self.fits, "optimizer": self.optimizer.state_dict(), "guard": self.guard.state_dict()}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        self.fits = state["fits"]
        self.optimizer.load_state_dict(state["optimizer"])
        self.guard.load_state_dict(state["guard"])

    def _step(self, store: PreferenceStore, chosen: Tensor) -> tuple[float, float, float]:
        """A gradient step on pairs (members, n) of the store: loss, accuracy and reward gap."""
        first, second = (segment_rewards(self.model, side[chosen]) for side in (store.first, store.second))
        loss, metrics = bradley_terry(first, second, store.labels[chosen].to(first.device))
        loss.backward()  # type: ignore[no-untyped-call]
        value = float(loss.detach())
        clip_and_step(self.optimizer, self.model.parameters(), max_norm=10.0, guard=self.guard, loss=value)
        return value, float(metrics["accuracy"]), float(metrics["reward_gap"])


def orders(members: int, pairs: int, rng: np.random.Generator, bootstrap: bool) -> Tensor:
    """(members, pairs) the order in which each member sees the pairs."""
    if bootstrap:
        return torch.from_numpy(rng.integers(pairs, size=(members, pairs)))
    return torch.from_numpy(np.stack([rng.permutation(pairs) for _ in range(members)]))


class LearnedReward:
    """The ensemble's mean as a reward. Preferences fix neither zero nor unit: `relabel` standardises over the replay.

    With a sharpness k it is exp(k · (level - 1)) instead, with levels from 0 for the worst of the replay to 1 for the
    best: preferences tell only the order, and a reward that rises evenly pays the good nearly as well as the best.
    """

    def __init__(self, model: RewardModel, kind: Feature, *, sharpness: float = 0.0, chunk: int | None = None) -> None:
        self.model, self.kind, self.sharpness = model, kind, sharpness
        # a CPU's cache holds the activations of a few frames
        self.chunk = chunk or (FRAMES_AT_ONCE if kind == "frame" and model.device.type == "cpu" else 1024)
        self.shift, self.scale = 0.0, 1.0

    def __call__(self, slots: Slots) -> Floats:
        """(n,) rewards of slots of the replay."""
        return self.of(slots.features(self.kind))

    def of_step(self, state: Floats, frame: NDArray[np.uint8] | None) -> float:
        """The reward of one step, by the state (s,) and the frame (h, w, 3) after it."""
        features: Any = state if self.kind == "state" else frame
        return float(self.of(features[None])[0])

    def of(self, features: NDArray[Any]) -> Floats:
        """(n,) of states (n, s) or frames (n, h, w, 3)."""
        levels = (self._raw(features) - self.shift) * self.scale
        # better than all before counts, but not without bounds
        rewards = np.exp(self.sharpness * np.minimum(levels, 0.2)) if self.sharpness else levels
        return np.asarray(rewards, dtype=np.float32)

    def relabel(self, replay: Replay, *, most: int = 4096) -> dict[str, float]:
        """Fix zero and unit by up to `most` of the replay's slots, evenly spaced; then relabel all of it."""
        spread = np.linspace(0, len(replay) - 1, min(most, len(replay))).astype(np.int64)
        raw = self._raw(replay.slots(spread).features(self.kind))
        if self.sharpness:
            worst, best = np.quantile(raw, [WORST, BEST])
            self.shift, self.scale = float(best), 1.0 / max(float(best - worst), 1e-3)
        else:
            self.shift, self.scale = float(raw.mean()), 1.0 / max(float(raw.std()), 1e-3)
        replay.relabel(self)
        return {"reward/mean": float(raw.mean()), "reward/std": float(raw.std())}

    def state_dict(self) -> dict[str, float]:
        return {"shift": self.shift, "scale": self.scale}

    def load_state_dict(self, state: dict[str, float]) -> None:
        self.shift, self.scale = state["shift"], state["scale"]

    @torch.no_grad()
    def _raw(self, features: NDArray[Any]) -> Floats:
        parts = torch.split(torch.from_numpy(np.ascontiguousarray(features)), self.chunk)
        means = [self.model(part.to(self.model.device, non_blocking=True)).mean(dim=0) for part in parts]
        rewards: Floats = torch.cat(means).cpu().numpy()
        return rewards


class ServedJudge(Judge, Stateful, Protocol):
    """A judge that counts its replies."""

    @property
    def counts(self) -> Mapping[str, int]: ...


@dataclass(frozen=True)
class Feedback:
    """Who labels, the labels, and the reward learned from them."""

    label: Labeller
    judge: ServedJudge | None
    store: PreferenceStore
    learner: RewardLearner
    reward: LearnedReward

    @property
    def state(self) -> dict[str, Any]:
        """What a checkpoint holds beside the weights."""
        parts: dict[str, Any] = {"reward": self.learner, "scale": self.reward, "labels": self.store}
        return parts if self.judge is None else {**parts, "judge": self.judge}

    @property
    def judge_counts(self) -> dict[str, int]:
        """Replies of the server, replies from disk, and replies that could not be parsed, so far."""
        counts = {} if self.judge is None else self.judge.counts
        return {name: counts[name] for name in ("requests", "cached", "unparsable") if counts}
