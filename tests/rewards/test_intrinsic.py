import math

import pytest
import torch

from lookact.errors import ConfigError
from lookact.rewards.intrinsic import IntrinsicRewards, RewardScale, intrinsic_rewards, uncertainty


def memory(rows=3):
    return torch.ones(rows, 2), 3 * torch.ones(rows, 2)


def positions(rows):
    return torch.arange(float(rows))[:, None]


def test_a_step_moves_memory():
    # (3 - 1) of (3 + 1)
    assert intrinsic_rewards(*memory(2), positions(2), torch.zeros(2)).divergence.tolist() == pytest.approx([0.5, 0.5])


def test_entropy_by_hand():
    sure, unsure = torch.tensor([50.0, 0, 0, 0]), torch.zeros(4)
    logits = torch.stack([sure, unsure]).reshape(1, 2, 1, 4)
    found = uncertainty(logits, torch.zeros(1, 2, 3), torch.zeros(2, 1, dtype=torch.long), kind="entropy")
    assert found.tolist() == pytest.approx([0.0, math.log(4)], abs=1e-5)


def test_surprise_is_what_the_members_mean_makes_of_what_ids():
    # one member gives the first token 1/2, the other 1/4: 3/8 on average, and 1/4 and 1/2 of the second
    logits = torch.tensor([[2.0, 1.0, 1.0], [1.0, 2.0, 1.0]]).log().reshape(2, 1, 1, 3).expand(2, 1, 2, 3)
    ids = torch.tensor([[0, 2]])
    found = uncertainty(logits, torch.zeros(2, 1, 3), ids, kind="surprise")
    assert found.tolist() == pytest.approx([-(math.log(3 / 8) + math.log(1 / 4)) / 2])


def test_members_that_agree_on_pure_noise_earn_nothing_by_disagreement_and_all_by_entropy_and_surprise():
    noise, grey, ids = torch.zeros(3, 2, 5, 8), torch.ones(3, 2, 6), torch.zeros(2, 5, dtype=torch.long)
    assert uncertainty(noise, grey, ids, kind="disagreement").tolist() == pytest.approx([0.0, 0.0])
    for kind in ("entropy", "surprise"):
        assert uncertainty(noise, grey, ids, kind=kind).tolist() == pytest.approx([math.log(8)] * 2)


def test_members_that_expect_different_things_disagree():
    expected, ids = torch.tensor([[[1.0, 5.0]], [[3.0, 5.0]]]), torch.zeros(1, 1, dtype=torch.long)
    # the first feature's variance is 1, the second's 0
    found = uncertainty(torch.zeros(2, 1, 1, 4), expected, ids, kind="disagreement")
    assert found.item() == pytest.approx(0.5)


def test_learning_progress_is_what_surprise_fell_by():
    # the true token had 1/4 and has 1/2: ln 2; of noise it had 1/4 and has 1/4
    older = torch.zeros(1, 2, 1, 4)
    present = torch.tensor([[3.0, 1.0, 1.0, 1.0], [1.0, 1.0, 1.0, 1.0]]).log().reshape(1, 2, 1, 4)
    ids, nothing = torch.zeros(2, 1, dtype=torch.long), torch.zeros(1, 2, 3)
    found = uncertainty(present, nothing, ids, kind="learning_progress", older=older)
    assert found.tolist() == pytest.approx([math.log(2), 0.0])
    with pytest.raises(ConfigError, match="an older world model"):
        uncertainty(present, nothing, ids, kind="learning_progress")


def test_a_scale_of_what_may_be_negative_is_its_mean_size():
    scale = RewardScale()
    ones, progress = torch.ones(3), torch.tensor([-1.0, 2.0, 3.0])
    scale.fit(IntrinsicRewards(ones, progress, ones), torch.ones(3, dtype=torch.bool))
    assert scale.uncertainty == pytest.approx(2.0)
    # random actions earn 4/3, of sizes of 2: 2/3 of a unit
    assert scale.random_reward((0.5, 3.0, 0.25)) == pytest.approx(0.5 + 3.0 * 2 / 3 + 0.25)


def test_who_stands_alone_earns_most_by_novelty():
    crowd = torch.cat([torch.zeros(20, 1), torch.ones(1, 1)])
    novelty = intrinsic_rewards(*memory(21), crowd, torch.zeros(21)).novelty
    assert novelty.tolist() == pytest.approx([0.0] * 20 + [math.log(2)])


def test_scales_are_what_random_actions_earn():
    scale = RewardScale()
    measured = IntrinsicRewards(
        torch.tensor([0.2, 0.4, 9.0]), torch.tensor([1.0, 3.0, 9.0]), torch.tensor([4.0, 6.0, 9.0])
    )
    scale.fit(measured, torch.tensor([True, True, False]))
    terms = IntrinsicRewards(torch.tensor([0.3]), torch.tensor([4.0]), torch.tensor([10.0]))
    found = scale.weighted(terms, (0.5, 0.25, 2.0))
    assert (found.divergence.item(), found.uncertainty.item(), found.novelty.item()) == pytest.approx((0.5, 0.5, 4.0))
    again = RewardScale()
    again.load_state_dict(scale.state_dict())
    assert again.state_dict() == scale.state_dict()
