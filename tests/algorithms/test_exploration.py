import numpy as np
import pytest
import torch

from lookact.algorithms.exploration import (
    OU_RATE,
    OU_SCALE,
    SCRIPTS,
    coverage,
    coverage_by_row,
    held_actions,
    interaction,
    joint_coverage,
    matched_actions,
    noise_share,
)
from lookact.data.sequences import TokenSequences
from lookact.seeding import numpy_rng

SHAPE = (3, 50, 4)


@pytest.mark.parametrize("name", SCRIPTS)
def test_scripts_keep_to_their_bounds_and_are_seeded(name):
    one, again, other = (SCRIPTS[name](numpy_rng(seed), SHAPE) for seed in (0, 0, 1))
    assert one.shape == SHAPE
    assert one.dtype == np.float32
    assert np.abs(one).max() <= 1
    assert np.array_equal(one, again)
    assert not np.array_equal(one, other)


def test_held_actions_change_when_they_should():
    actions = held_actions(numpy_rng(0), SHAPE, steps=12)
    changes = np.flatnonzero((np.diff(actions, axis=1) != 0).any(axis=(0, 2))) + 1
    assert changes.tolist() == [12, 24, 36, 48]
    assert set(np.unique(SCRIPTS["bang_bang_8"](numpy_rng(0), SHAPE))) == {-1.0, 1.0}


def test_ou_noise_is_correlated_as_it_should_be():
    walk = SCRIPTS["ou"](numpy_rng(0), (200, 200, 2))[:, 50:]
    # clipping takes a little off the deviation that the process would have
    assert 0.8 < walk.std() / (OU_SCALE / np.sqrt(1 - (1 - OU_RATE) ** 2)) < 1
    correlation = np.corrcoef(walk[:, 1:].ravel(), walk[:, :-1].ravel())[0, 1]
    assert correlation == pytest.approx(1 - OU_RATE, abs=0.05)


def test_matched_actions_keep_nothing_but_the_sizes():
    own = numpy_rng(0).uniform(-1, 1, (3, 6, 8)).astype(np.float32)
    mixed = matched_actions(numpy_rng(1), own)
    assert mixed.shape == own.shape
    for one, other in zip(np.abs(mixed).reshape(-1, 8).T, np.abs(own).reshape(-1, 8).T):
        assert np.sort(one) == pytest.approx(np.sort(other))
    assert (np.sign(mixed) != np.sign(own)).any()


def test_coverage_counts_cells_of_five_centimetres():
    positions = np.array([[[0.01, 0.01, 0.01], [0.04, 0.01, 0.01], [0.06, 0.01, 0.01]], [[0.01, 0.01, 0.01]] * 3])
    assert coverage(positions) == 2
    assert coverage_by_row(positions).tolist() == [2, 1]


def test_contact_is_a_rate_and_displacement_the_farthest():
    infos = [({"contact": True, "displacement": 0.1}, {}), ({"contact": False, "displacement": 0.05}, {})]
    found = interaction(infos)
    assert found["contact_rate"].tolist() == [0.5, 0.0]
    assert found["displacement"].tolist() == [0.1, 0.0]


def test_the_share_of_the_reward_that_noise_takes():
    state = torch.zeros(3, 8, 11)
    state[0, 1:, 9] = 1.0
    rewards = torch.ones(3, 7)
    rewards[0] = 2.0
    zeros = torch.zeros(3, 8, 1)
    found = TokenSequences(zeros, zeros, zeros[:, 0, 0], state, zeros[:, 1:], zeros[:, 0], zeros[:, 1:, 0])
    shares = noise_share(rewards, found)
    assert shares["rollout/noise_rate"] == pytest.approx(1 / 3)
    assert shares["reward/noise_share"] == pytest.approx(0.5)


def test_joints_are_counted_one_by_one():
    angles = np.array([[[0.05, -0.05], [0.15, -0.05]], [[0.06, 0.05], [0.31, -0.09]]], np.float32)
    # three bins of a tenth of a radian of the first, two of the second
    assert joint_coverage(angles) == 5.0
