import math

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from lookact.errors import TokenMismatch
from lookact.ops.mismatch import (
    MismatchGate,
    MismatchLimits,
    importance_weights,
    mismatch_limits,
    truncated_importance,
)

NAN, INF = math.nan, math.inf
MASK = torch.tensor([[1, 1, 0], [1, 0, 0], [0, 0, 0]]).bool()
GAP = torch.tensor([[math.log(4), math.log(0.5), NAN], [0.0, INF, -INF], [NAN, NAN, NAN]])
BEHAVIOUR = torch.full((3, 3), -2.0)


def test_weights_and_raw_gap_by_hand():
    weights, metrics = truncated_importance(BEHAVIOUR + GAP, BEHAVIOUR, MASK, cap=2.0)
    assert weights.flatten().tolist() == pytest.approx([2.0, 0.5, 0, 1, 0, 0, 0, 0, 0])
    # ratios 4, ½ and 1: the gap is measured on 4, not on the 2 that the cap leaves
    assert metrics["gap_mean"] == pytest.approx(3 * math.log(2) / 3)
    assert metrics["gap_max"] == pytest.approx(math.log(4))
    assert metrics["kl_k1"] == pytest.approx(-math.log(2) / 3)
    assert metrics["kl_k3"] == pytest.approx((4 - 1 - math.log(4) + 0.5 - 1 + math.log(2)) / 3)
    assert metrics["truncated"] == pytest.approx(1 / 3)


def test_the_same_policy_has_weight_one_and_no_gap():
    weights, metrics = truncated_importance(BEHAVIOUR, BEHAVIOUR, MASK, cap=2.0)
    assert torch.equal(weights, MASK.float())
    assert all(x == 0.0 for x in metrics.values())


def test_untruncated_weights_average_to_one_over_the_behaviour():
    behaviour, learner = torch.tensor([0.5, 0.3, 0.2]), torch.tensor([0.1, 0.3, 0.6])
    weights, metrics = truncated_importance(
        learner.log()[None], behaviour.log()[None], torch.ones(1, 3).bool(), cap=9.0
    )
    assert (behaviour * weights).sum().item() == pytest.approx(1.0)
    assert metrics["truncated"] == 0.0


def test_weights_are_constants():
    logprobs = BEHAVIOUR.clone().requires_grad_()
    weights, metrics = truncated_importance(logprobs, BEHAVIOUR, MASK, cap=2.0)
    assert not weights.requires_grad
    assert not any(x.requires_grad for x in metrics.values())


@given(st.floats(-1e30, 1e30), st.floats(0.1, 100))
def test_weights_stay_between_zero_and_the_cap(gap, cap):
    weights, metrics = truncated_importance(torch.tensor([[gap]]), torch.zeros(1, 1), torch.tensor([[True]]), cap=cap)
    assert 0 < weights.item() <= cap * (1 + 1e-6)
    assert metrics["gap_max"].item() == pytest.approx(abs(gap), rel=1e-6)
    assert metrics["kl_k3"].isfinite()


@pytest.mark.parametrize("width", [3, 0])
def test_nothing_counted_gives_zeros(width):
    weights, metrics = truncated_importance(GAP[:, :width], GAP[:, :width], MASK[:, :width] & False, cap=2.0)
    assert torch.equal(weights, torch.zeros(3, width))
    assert all(x == 0.0 for x in metrics.values())


def test_a_cap_of_nothing_raises():
    with pytest.raises(ValueError, match="cap above it"):
        truncated_importance(GAP, GAP, MASK, cap=0)


def test_level_none_weighs_every_unit_one_and_still_measures_the_gap():
    weights, metrics = importance_weights(BEHAVIOUR + GAP, BEHAVIOUR, MASK, cap=0.5, level="none")
    assert torch.equal(weights, MASK.float())
    assert metrics["gap_max"] == pytest.approx(math.log(4))
    assert metrics["truncated"] == 0.0


def test_a_sequences_ratio_is_the_product_and_its_geometric_mean_by_hand():
    # row 0 has the ratios 4 and 1/2: product 2, geometric mean sqrt(2); row 1 has 1
    product, _ = importance_weights(BEHAVIOUR + GAP, BEHAVIOUR, MASK, cap=9.0, level="sequence")
    assert product.flatten().tolist() == pytest.approx([2, 2, 0, 1, 0, 0, 0, 0, 0])
    mean, metrics = importance_weights(BEHAVIOUR + GAP, BEHAVIOUR, MASK, cap=1.2, level="geometric")
    assert mean.flatten().tolist() == pytest.approx([1.2, 1.2, 0, 1, 0, 0, 0, 0, 0])
    assert metrics["truncated"] == pytest.approx(2 / 3)


@pytest.mark.parametrize(
    ("level", "weights"),
    [("token", [0, 0, 0, 1, 0, 0, 0, 0, 0]), ("sequence", [2, 2, 0, 1, 0, 0, 0, 0, 0])],
)
def test_masked_importance_drops_what_is_outside_the_bounds(level, weights):
    found, _ = importance_weights(BEHAVIOUR + GAP, BEHAVIOUR, MASK, low=0.6, cap=3.0, level=level, masked=True)
    assert found.flatten().tolist() == pytest.approx(weights)


def test_bounds_the_wrong_way_round_are_refused():
    with pytest.raises(ValueError, match="low must be at least 0"):
        importance_weights(GAP, GAP, MASK, low=3.0, cap=2.0)


LIMITS = MismatchLimits(token=0.5, mean=0.01)


def judged(logprobs, sampled, mask, limits=LIMITS):
    gate = MismatchGate(limits)
    agree = [gate.agree(*rows) for rows in zip(logprobs, sampled, mask)]
    return torch.stack(agree), {name.removeprefix("policy/mismatch_"): value for name, value in gate.judge().items()}


def a_thousand(*outliers):
    """Log-probs of 2 x 1 x 1000 tokens, as scored and as sampled, with gaps of the size given at the first places."""
    sampled = torch.full((2, 1, 1000), -1.0)
    scored = sampled.clone()
    scored[0, 0, : len(outliers)] += torch.tensor(outliers)
    return scored, sampled, torch.ones_like(sampled, dtype=torch.bool)


def test_outliers_are_left_out_and_counted_up_to_one_in_a_thousand():
    agree, told = judged(*a_thousand(2.0, -4.0, 0.4))
    assert agree.flatten().tolist() == [False, False] + 1998 * [True]
    assert told == pytest.approx({"gap_max": 4.0, "gap_mean": 6.4 / 2000, "outliers": 0.001})
    with pytest.raises(TokenMismatch, match=r"0\.15% of the tokens by more than 0\.5.*learn\.max_logprob_gap"):
        judged(*a_thousand(2.0, 2.0, 2.0))


def test_many_small_differences_stop_as_well():
    with pytest.raises(TokenMismatch, match=r"disagree by 0\.0105 nats a token.*learn\.max_mean_logprob_gap"):
        judged(*a_thousand(*70 * [0.3]))


def test_every_sampled_unit_is_checked_and_padding_is_not():
    sampled = torch.tensor([[-1.0, -2.0, -3.0, -0.5, 0.0]])
    known = torch.tensor([[True, True, True, True, False]])
    tight = MismatchLimits(1e-4, 1e-4)
    for place in range(4):
        off = sampled.clone()
        off[0, place] += 0.01
        with pytest.raises(TokenMismatch, match=r"25\.00% of the tokens"):
            judged([off], [sampled], [known], tight)
    padded = sampled.clone()
    padded[0, 4] = 50.0
    agree, told = judged([padded], [sampled], [known], tight)
    assert agree.all()
    assert told == {"gap_max": 0.0, "gap_mean": 0.0, "outliers": 0.0}


def test_a_sampler_without_numbers_is_a_mismatch_and_a_learner_without_is_none():
    sampled, known = torch.tensor([[-1.0, -2.0]]), torch.tensor([[True, True]])
    with pytest.raises(TokenMismatch):
        judged([sampled], [torch.tensor([[NAN, -2.0]])], [known], MismatchLimits(math.inf, math.inf))
    # its step is skipped, and counted, as one that is not finite
    agree, told = judged([torch.full((1, 2), NAN)], [sampled], [known])
    assert agree.all()
    assert told["outliers"] == 0.0


def test_bfloat16_is_given_more_room_unless_a_limit_is_set():
    assert mismatch_limits("float32").token < 0.01 < mismatch_limits("bfloat16").token
    assert mismatch_limits("bfloat16", token=2.0) == MismatchLimits(2.0, mismatch_limits("bfloat16").mean)
