from itertools import pairwise

import numpy as np
import pytest

from lookact.rewards.functions import PARTS, WeightedParts, progress
from lookact.types import Decision, Episode, Observation, Turn


def episode(potentials, *, terminated=True):
    """One turn between each two potentials."""
    nothing = np.zeros(0, np.float32)
    decision = Decision("", nothing, nothing.astype(bool))
    pairs = list(pairwise(potentials))
    turns = [
        Turn(Observation(), decision, 7.0, terminated and i == len(pairs) - 1, False, {"p_before": a, "p": b})
        for i, (a, b) in enumerate(pairs)
    ]
    return Episode("e", 0, 0, tuple(turns))


def test_progress_is_the_difference_of_potentials():
    assert progress("p", gamma=1.0, kept=True)(episode([0.25, 0.5, 1.0])) == [0.25, 0.5]
    assert progress("p", gamma=0.5, kept=True)(episode([0.25, 0.5, 1.0])) == [0.0, 0.0]
    assert progress("p", gamma=1.0, kept=False)(episode([0.25, 0.5, 1.0])) == [0.25, -0.5]
    assert progress("p", gamma=1.0, kept=False)(episode([0.25, 0.5, 1.0], terminated=False)) == [0.25, 0.5]


@pytest.mark.parametrize("gamma", [1.0, 0.9])
@pytest.mark.parametrize("path", [[0.25, 0.5, 1.0], [0.25, 0.25], [0.25, 1.0, 0.0, 0.5]])
def test_progress_that_is_not_kept_sums_to_the_same_whatever_was_done(gamma, path):
    paid = progress("p", gamma=gamma, kept=False)(episode(path))
    assert sum(gamma**t * pay for t, pay in enumerate(paid)) == pytest.approx(-0.25)


def test_rewards_become_the_weighted_sum_and_each_part_is_kept():
    parts = WeightedParts(
        {"one": (2.0, lambda e: [1.0] * len(e.turns)), "two": (0.5, lambda e: list(range(len(e.turns))))}
    )
    shaped = parts.relabel([episode([0, 0, 0, 0]), episode([0, 0])])
    assert [[turn.reward for turn in e.turns] for e in shaped] == [[2.0, 2.5, 3.0], [2.0]]
    assert shaped[0].turns[2].info[PARTS] == {"one": 2.0, "two": 1.0}
    assert shaped[0].turns[2].info["p"] == 0
