"""Simulated teachers that know the true rewards, with the faults of people (B-Pref, arXiv:2111.03026, section 3).

A segment's score is its summed reward. From a perfect teacher they differ in one way each:
mistake flips an answer now and then; noisy prefers by Bradley-Terry; skip gives none where both segments are poor;
myopic weighs late steps more; equal calls nearly equal segments equal.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from lookact.seeding import numpy_rng
from lookact.types import Preference

Scores = NDArray[np.float64]

ROUNDING = 1e-12
"""Of the summed rewards: scores that differ by less are equal, whichever way their sums were rounded."""


@dataclass(frozen=True)
class Teacher:
    """How answers are given; the defaults are the oracle's."""

    mistake: float = 0.0
    """Chance that an answer is turned around."""
    beta: float = float("inf")
    """Rationality: the second is preferred with probability sigmoid(beta * (second - first))."""
    gamma: float = 1.0
    """A step counts gamma for each step after it."""
    skip: float = 0.0
    """No answer where neither score exceeds this share of the margin."""
    equal: float = 0.0
    """No preference where scores differ by less than this share of the margin."""

    def prefer(
        self, first: Scores, second: Scores, *, seed: int, margin: float = 1.0
    ) -> tuple[NDArray[np.int64], NDArray[np.bool_]]:
        """Verdicts (n,) on rewards (n, t) or scores (n,), and whether each pair was answered at all (n,).

        A draw depends on the seed and the pair's place alone. `margin` is the scale of scores that skip and equal are
        shares of, such as the mean return of a segment.
        """
        first, second = by_step(first), by_step(second)
        sums = first.sum(axis=1), second.sum(axis=1)
        answered = np.maximum(*sums) > self.skip * margin if self.skip else np.ones(len(first), dtype=bool)
        gap = discounted(second, self.gamma) - discounted(first, self.gamma)
        gap[np.abs(gap) <= ROUNDING * (np.abs(first) + np.abs(second)).sum(axis=1)] = 0.0
        verdicts = self._choose(gap, numpy_rng(seed, "teacher", "choice"))
        flipped = numpy_rng(seed, "teacher", "mistake").random(len(gap)) < self.mistake
        verdicts = np.where(flipped & (verdicts >= 0), 1 - verdicts, verdicts)
        alike = np.abs(sums[1] - sums[0]) < self.equal * margin
        return np.where(alike | ~answered, -1, verdicts), answered

    def teach(
        self, pairs: Sequence[tuple[Any, Any]], first: Scores, second: Scores, *, seed: int, margin: float = 1.0
    ) -> list[Preference]:
        """The pairs with their verdicts and scores; a pair left out says so in its text."""
        verdicts, answered = self.prefer(first, second, seed=seed, margin=margin)
        sums = by_step(first).sum(axis=1), by_step(second).sum(axis=1)
        return [
            Preference(one, two, int(verdict), str(verdict) if spoke else "skipped", float(a), float(b))
            for (one, two), verdict, spoke, a, b in zip(pairs, verdicts, answered, *sums)
        ]

    def _choose(self, gap: Scores, rng: np.random.Generator) -> NDArray[np.int64]:
        if np.isinf(self.beta):
            return np.where(gap == 0, -1, gap > 0).astype(np.int64)
        # 1 / (1 + exp(-x)) without overflow
        chance = 0.5 * (1.0 + np.tanh(0.5 * self.beta * gap))
        return (rng.random(len(gap)) < chance).astype(np.int64)


TEACHERS = {
    "oracle": Teacher(),
    "mistake": Teacher(mistake=0.1),
    "noisy": Teacher(beta=1.0),
    "skip": Teacher(skip=0.1),
    "myopic": Teacher(gamma=0.9),
    "equal": Teacher(equal=0.1),
}


def by_step(rewards: Scores) -> Scores:
    """Rewards (n, t); scores (n,) are segments of one step."""
    rewards = np.asarray(rewards, dtype=np.float64)
    return rewards[:, None] if rewards.ndim == 1 else rewards


def discounted(rewards: Scores, gamma: float) -> Scores:
    """Sums (n,) of rewards (n, t), the last step whole and each earlier one gamma times the next."""
    weights = gamma ** np.arange(rewards.shape[1] - 1, -1, -1)
    return np.asarray(rewards @ weights)
