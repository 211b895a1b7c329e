import math

import pytest
import torch

from lookact.rewards.intrinsic import Parts, Units, curiosity


def memory(rows=3):
    return torch.ones(rows, 2), 3 * torch.ones(rows, 2)


def test_entropy_by_hand():
    sure, unsure = torch.tensor([50.0, 0, 0, 0]), torch.zeros(4)
    logits = torch.stack([sure, unsure]).reshape(1, 2, 1, 4)
    parts = curiosity(*memory(2), logits, kind="entropy")
    assert parts.uncertainty.tolist() == pytest.approx([0.0, math.log(4)], abs=1e-5)
    # (3 - 1) of (3 + 1)
    assert parts.divergence.tolist() == pytest.approx([0.5, 0.5])


def test_members_that_agree_on_pure_noise_earn_nothing_by_disagreement_and_all_by_entropy():
    noise = torch.zeros(3, 2, 5, 8)
    assert curiosity(*memory(2), noise, kind="disagreement").uncertainty.tolist() == pytest.approx([0.0, 0.0])
    assert curiosity(*memory(2), noise, kind="entropy").uncertainty.tolist() == pytest.approx([math.log(8)] * 2)


def test_members_that_contradict_each_other_disagree():
    certain = 50 * torch.nn.functional.one_hot(torch.tensor([[0], [1]]), 4).float().reshape(2, 1, 1, 4)
    parts = curiosity(*memory(1), certain, kind="disagreement")
    # two of four probabilities are 0 or 1 by turns, variance a quarter each; times four codes over four
    assert parts.uncertainty.item() == pytest.approx(0.5, abs=1e-4)


def test_units_are_what_random_actions_earn():
    units = Units()
    units.measure(
        Parts(torch.tensor([0.2, 0.4, 9.0]), torch.tensor([1.0, 3.0, 9.0])), torch.tensor([True, True, False])
    )
    moved, unsure = units.pay(Parts(torch.tensor([0.3]), torch.tensor([4.0])), divergence=0.5, uncertainty=0.25)
    assert moved.item() == pytest.approx(0.5)
    assert unsure.item() == pytest.approx(0.5)
    again = Units()
    again.load_state_dict(units.state_dict())
    assert again.state_dict() == units.state_dict()
