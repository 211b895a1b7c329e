import math

import pytest
import torch

from lookact.rewards.intrinsic import Parts, Units, curiosity


def memory(rows=3):
    return torch.ones(rows, 2), 3 * torch.ones(rows, 2)


def places(rows):
    return torch.arange(float(rows))[:, None]


def test_entropy_by_hand():
    sure, unsure = torch.tensor([50.0, 0, 0, 0]), torch.zeros(4)
    logits = torch.stack([sure, unsure]).reshape(1, 2, 1, 4)
    parts = curiosity(*memory(2), logits, torch.zeros(1, 2, 3), places(2), kind="entropy")
    assert parts.uncertainty.tolist() == pytest.approx([0.0, math.log(4)], abs=1e-5)
    # (3 - 1) of (3 + 1)
    assert parts.divergence.tolist() == pytest.approx([0.5, 0.5])


def test_members_that_agree_on_pure_noise_earn_nothing_by_disagreement_and_all_by_entropy():
    noise, grey = torch.zeros(3, 2, 5, 8), torch.ones(3, 2, 6)
    assert curiosity(*memory(2), noise, grey, places(2), kind="disagreement").uncertainty.tolist() == pytest.approx(
        [0.0, 0.0]
    )
    assert curiosity(*memory(2), noise, grey, places(2), kind="entropy").uncertainty.tolist() == pytest.approx(
        [math.log(8)] * 2
    )


def test_members_that_expect_different_things_disagree():
    expected = torch.tensor([[[1.0, 5.0]], [[3.0, 5.0]]])
    parts = curiosity(*memory(1), torch.zeros(2, 1, 1, 4), expected, places(1), kind="disagreement")
    # the first feature's variance is 1, the second's 0
    assert parts.uncertainty.item() == pytest.approx(0.5)


def test_who_stands_alone_earns_most_by_novelty():
    crowd = torch.cat([torch.zeros(20, 1), torch.ones(1, 1)])
    novelty = curiosity(*memory(21), torch.zeros(1, 21, 1, 2), torch.zeros(1, 21, 1), crowd, kind="entropy").novelty
    assert novelty.tolist() == pytest.approx([0.0] * 20 + [math.log(2)])


def test_units_are_what_random_actions_earn():
    units = Units()
    measured = Parts(torch.tensor([0.2, 0.4, 9.0]), torch.tensor([1.0, 3.0, 9.0]), torch.tensor([4.0, 6.0, 9.0]))
    units.measure(measured, torch.tensor([True, True, False]))
    parts = Parts(torch.tensor([0.3]), torch.tensor([4.0]), torch.tensor([10.0]))
    moved, unsure, alone = units.pay(parts, divergence=0.5, uncertainty=0.25, novelty=2.0)
    assert (moved.item(), unsure.item(), alone.item()) == pytest.approx((0.5, 0.5, 4.0))
    again = Units()
    again.load_state_dict(units.state_dict())
    assert again.state_dict() == units.state_dict()
