import pytest
import torch

from lookact.algorithms.control_groups import group_advantages
from lookact.batch import ControlInputs
from lookact.rollout.vector_rollout import Rollout


def rollout_of(rewards, over, mask=None):
    """Steps by rows; True in `over` ends an episode."""
    rewards, over = torch.tensor(rewards, dtype=torch.float32), torch.tensor(over, dtype=torch.bool)
    nothing = torch.zeros_like(rewards)
    inputs = ControlInputs(nothing[..., None], nothing[..., None], {}, nothing[..., None].long(), nothing[..., None])
    mask = torch.ones_like(over) if mask is None else torch.tensor(mask, dtype=torch.bool)
    return Rollout(inputs, nothing, nothing, rewards, over, ~over & False, nothing, mask, nothing[0], ())


# four rows, two groups; the first row begins a second episode after its first
REWARDS = [[1, 0, 0, 0], [9, 0, 1, 0], [9, 0, 0, 2]]
OVER = [[1, 0, 0, 0], [0, 0, 1, 0], [0, 1, 0, 1]]


def test_each_first_episode_is_held_against_the_other_of_its_group():
    rollout = rollout_of(REWARDS, OVER)
    advantages, counted, metrics = group_advantages(rollout, rollout.rewards, ("rloo", 2))
    # returns 1 and 0, 1 and 2: each minus the other
    assert advantages.tolist() == [[1, -1, -1, 1], [0, -1, -1, 1], [0, -1, 0, 1]]
    assert counted.tolist() == [[True] * 4, [False, True, True, True], [False, True, False, True]]
    assert float(metrics["rollout/zero_variance_groups"]) == 0


def test_grpo_divides_by_the_deviation_and_equal_returns_teach_nothing():
    rollout = rollout_of([[1, 0, 3, 3]], [[1, 1, 1, 1]])
    advantages, _, metrics = group_advantages(rollout, rollout.rewards, ("grpo", 2))
    assert advantages[0].tolist() == pytest.approx([2**-0.5, -(2**-0.5), 0, 0], abs=1e-4)
    assert float(metrics["rollout/zero_variance_groups"]) == 0.5


def test_unfinished_and_failed_episodes_are_left_out_with_who_is_alone_then():
    # the second row does not end; the third's worker failed; the fourth, and the first, are left alone
    rollout = rollout_of([[1, 1, 1, 1]], [[1, 0, 1, 1]], [[1, 1, 0, 1]])
    advantages, counted, metrics = group_advantages(rollout, rollout.rewards, ("rloo", 2))
    assert not advantages.any()
    assert not counted.any()
    assert float(metrics["rollout/zero_variance_groups"]) == 1
    # in a group of four the two whole ones are compared
    advantages, counted, _ = group_advantages(rollout, rollout.rewards, ("rloo", 4))
    assert counted.tolist() == [[True, False, False, True]]
