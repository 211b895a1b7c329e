import math
from itertools import pairwise

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from lookact.ops.advantages import (
    anchor_groups,
    bilevel_gae,
    discounted_returns,
    gae,
    group_centre,
    group_normalise,
    leave_one_out,
    monte_carlo,
    turn_gae,
    zero_variance_groups,
)

NAN = math.nan
RETURNS = torch.tensor([1.0, 5.0, 2.0, 7.0, 3.0])
GROUPS = torch.tensor([4, -9, 4, -9, 4])


def test_leave_one_out_by_hand_in_groups_of_unequal_size():
    # group 4: 1, 2, 3 against 2.5, 2, 1.5; group -9: 5 and 7 against each other
    assert leave_one_out(RETURNS, GROUPS).tolist() == [-1.5, -2.0, 0.0, 2.0, 1.5]


def test_leave_one_out_refuses_a_group_of_one_by_name():
    with pytest.raises(ValueError, match="group 17 has one episode"):
        leave_one_out(torch.ones(3), torch.tensor([2, 17, 2]))


@given(st.lists(st.floats(-1e6, 1e6, width=32), min_size=2, max_size=10), st.floats(-1e3, 1e3, width=32))
def test_leave_one_out_sums_to_zero_and_ignores_a_shift(numbers, shift):
    returns = torch.tensor(numbers, dtype=torch.float64)
    groups = torch.zeros(len(numbers), dtype=torch.long)
    found = leave_one_out(returns, groups)
    assert float(found.sum()) == pytest.approx(0, abs=1e-6)
    torch.testing.assert_close(leave_one_out(returns + shift, groups), found, rtol=1e-6, atol=1e-6)


def test_leave_one_out_follows_a_reordering_of_rows():
    order = torch.tensor([3, 0, 4, 1, 2])
    assert torch.equal(leave_one_out(RETURNS[order], GROUPS[order]), leave_one_out(RETURNS, GROUPS)[order])


def test_group_normalise_by_hand():
    # group 4: 1, 2, 3 with sample deviation 1; group -9: mean 6, off by 1 on both sides, sample deviation sqrt(2)
    half = math.sqrt(0.5)
    assert group_normalise(RETURNS, GROUPS).tolist() == pytest.approx([-1, -half, 0, half, 1], abs=1e-5)


def test_group_centre_by_hand_and_as_a_share_of_leave_one_out():
    assert group_centre(RETURNS, GROUPS).tolist() == pytest.approx([-1, -1, 0, 1, 1])
    # minus the mean of all n is (n - 1)/n of minus the mean of the others
    sizes = (GROUPS[:, None] == GROUPS).sum(1)
    shares = leave_one_out(RETURNS, GROUPS) * (sizes - 1) / sizes
    torch.testing.assert_close(group_centre(RETURNS, GROUPS), shares)


def test_anchor_groups_join_turns_of_one_group_in_one_state():
    groups, anchors = torch.tensor([0, 0, 0, 1, 1]), torch.tensor([7, 8, 7, 7, 7])
    ids = anchor_groups(groups, anchors)
    assert [(ids == i).tolist() for i in ids] == [
        [True, False, True, False, False],
        [False, True, False, False, False],
        [True, False, True, False, False],
        [False, False, False, True, True],
        [False, False, False, True, True],
    ]
    # a state that was visited once has nobody to be compared with
    assert group_centre(torch.tensor([1.0, 5.0, 3.0, 2.0, 2.0]), ids).tolist() == [-1, 0, 1, 0, 0]


def test_groups_without_variance_give_zero_and_are_named():
    returns = torch.tensor([0.1, 0.1, 0.1, 5.0, 1.0, 2.0])
    groups = torch.tensor([0, 0, 0, 1, 2, 2])
    assert zero_variance_groups(returns, groups).tolist() == [True, True, True, True, False, False]
    assert torch.equal(group_normalise(returns, groups)[:4], torch.zeros(4))
    # the rounding of a mean must not become an advantage
    wide = torch.full((3,), 0.1, dtype=torch.float64)
    assert torch.equal(group_normalise(wide, groups[:3]), torch.zeros_like(wide))
    assert torch.equal(leave_one_out(returns[:3], groups[:3]), torch.zeros(3))


def test_group_baselines_survive_float32_extremes():
    returns = torch.tensor([1e30, -1e30, 1e30, -1e30])
    # four returns 1e30 off their mean: sample deviation sqrt(4/3)
    half = math.sqrt(0.75)
    assert group_normalise(returns, torch.zeros(4).long()).tolist() == pytest.approx([half, -half, half, -half])
    assert leave_one_out(returns, torch.zeros(4).long()).isfinite().all()


def draw(*shape, seed=0):
    return torch.randn(*shape, dtype=torch.float64, generator=torch.Generator().manual_seed(seed))


TURNS = torch.tensor([[0, 0, 0, 1, 1, 2, 2, 2], [0, 1, 1, 1, 2, 3, -1, -1]])
MASK = torch.tensor([[1, 1, 0, 0, 1, 1, 1, 0], [1, 0, 1, 1, 0, 1, 0, 0]]).bool()
REWARDS = torch.tensor([[0.5, 0, 1, 0, 2, 0, 0.25, 3], [1, 0, 0, -1, 2, 4, 0, 0]], dtype=torch.float64)
VALUES = draw(2, 8, seed=3).masked_fill(~MASK, NAN)
LAST = torch.tensor([0.6, -0.4], dtype=torch.float64)
RATES = {"gamma_turn": 0.9, "lam_turn": 0.8, "gamma_token": 0.97, "lam_token": 0.7}


def brute_force(rewards, values, turns, mask, terminated, last, *, gamma_turn, lam_turn, gamma_token, lam_token):
    """One row's turn and unit advantages, straight from the two definitions, with plain lists and sums."""
    units, credited = [], {}
    for i, counts in enumerate(mask):
        if counts:
            units.append(i)
            credited[i] = 0.0
        if units:
            credited[units[-1]] += rewards[i]
    order = sorted({turns[i] for i in units})
    members = [[i for i in units if turns[i] == turn] for turn in order]
    worth = [values[m[0]] for m in members] + [0.0 if terminated else last]
    paid = [sum(credited[i] for i in m) for m in members]
    deltas = [paid[k] + gamma_turn * worth[k + 1] - worth[k] for k in range(len(members))]
    a_turn = [
        sum((gamma_turn * lam_turn) ** (j - k) * deltas[j] for j in range(k, len(members))) for k in range(len(members))
    ] + [0.0]
    by_turn, by_unit = [0.0] * len(mask), [0.0] * len(mask)
    for k, m in enumerate(members):
        ahead = gamma_turn * (worth[k + 1] + lam_turn * a_turn[k + 1])
        steps = [credited[i] + gamma_token * values[j] - values[i] for i, j in pairwise(m)]
        steps.append(credited[m[-1]] + ahead - values[m[-1]])
        for position, i in enumerate(m):
            by_turn[i] = a_turn[k]
            by_unit[i] = sum((gamma_token * lam_token) ** l * d for l, d in enumerate(steps[position:]))
    return by_turn, by_unit


def check_against_brute_force(rewards, values, turns, mask, terminated, last):
    by_unit = bilevel_gae(rewards, values, turns, mask, terminated=terminated, last_values=last, **RATES)
    by_turn = turn_gae(rewards, values, turns, mask, gamma=0.9, lam=0.8, terminated=terminated, last_values=last)
    for i in range(len(rewards)):
        rows = (x[i].tolist() for x in (rewards, values, turns, mask, terminated, last))
        wanted_turn, wanted_unit = brute_force(*rows, **RATES)
        assert by_turn[i].tolist() == pytest.approx(wanted_turn)
        assert by_unit[i].tolist() == pytest.approx(wanted_unit)


@pytest.mark.parametrize("terminated", [[True, False], [False, True]])
def test_bilevel_and_turn_gae_are_the_brute_force_sums(terminated):
    check_against_brute_force(REWARDS, VALUES, TURNS, MASK, torch.tensor(terminated), LAST)


@given(st.lists(st.tuples(st.booleans(), st.booleans()), min_size=1, max_size=9), st.booleans(), st.integers(0, 999))
def test_bilevel_is_the_brute_force_sum_on_any_layout(layout, terminated, seed):
    mask = torch.tensor([[counts for counts, _ in layout]])
    turns = torch.tensor([[int(new) for _, new in layout]]).cumsum(1)
    values = draw(1, len(layout), seed=seed).masked_fill(~mask, NAN)
    last = torch.tensor([NAN if terminated else 0.5], dtype=torch.float64)
    rewards = draw(1, len(layout), seed=seed + 1)
    check_against_brute_force(rewards, values, turns, mask, torch.tensor([terminated]), last)


def test_bilevel_by_hand():
    # turn 1: A = 4 − 3 = 1. Turn 0 ahead of its last unit: ½·(3 + 1·1) = 2, so a_1 = 0 + 2 − 6 = −4 and
    # a_0 = 0 + ½·6 − 2 + ½·(−4) = −1
    found = bilevel_gae(
        torch.tensor([[0.0, 0.0, 4.0]]),
        torch.tensor([[2.0, 6.0, 3.0]]),
        torch.tensor([[0, 0, 1]]),
        torch.ones(1, 3, dtype=torch.bool),
        gamma_turn=0.5,
        lam_turn=1.0,
        gamma_token=0.5,
        lam_token=1.0,
        terminated=torch.tensor([True]),
        last_values=torch.tensor([NAN]),
    )
    assert found.tolist() == [[-1.0, -4.0, 1.0]]


def test_turns_of_one_unit_are_plain_gae():
    rewards, values, mask = draw(2, 5), draw(2, 5, seed=1), torch.ones(2, 5, dtype=torch.bool)
    turns = torch.arange(5).expand(2, 5)
    ends = {"terminated": torch.tensor([False, False]), "last_values": LAST}
    wanted = gae(rewards, values, ~mask, mask, gamma=0.9, lam=0.8, last_values=LAST)
    torch.testing.assert_close(bilevel_gae(rewards, values, turns, mask, **RATES, **ends), wanted)
    torch.testing.assert_close(turn_gae(rewards, values, turns, mask, gamma=0.9, lam=0.8, **ends), wanted)


def test_one_turn_is_plain_gae_over_its_tokens():
    rewards, values, mask = draw(2, 5), draw(2, 5, seed=1), torch.ones(2, 5, dtype=torch.bool)
    ends = {"terminated": torch.tensor([True, True]), "last_values": LAST}
    found = bilevel_gae(rewards, values, torch.zeros(2, 5).long(), mask, **RATES, **ends)
    wanted = gae(rewards, values, ~mask, mask, gamma=0.97, lam=0.7, last_values=torch.zeros(2))
    torch.testing.assert_close(found, wanted)


def test_undiscounted_tokens_give_a_turns_first_unit_the_turns_advantage():
    rates = {**RATES, "gamma_token": 1.0, "lam_token": 1.0}
    ends = {"terminated": torch.tensor([False, True]), "last_values": LAST}
    by_unit = bilevel_gae(REWARDS, VALUES, TURNS, MASK, **rates, **ends)
    by_turn = turn_gae(REWARDS, VALUES, TURNS, MASK, gamma=0.9, lam=0.8, **ends)
    first = torch.tensor([[1, 0, 0, 0, 1, 1, 0, 0], [1, 0, 1, 0, 0, 1, 0, 0]]).bool()
    torch.testing.assert_close(by_unit[first], by_turn[first])


def test_all_rates_at_one_give_return_minus_value():
    rates = dict.fromkeys(RATES, 1.0)
    ends = {"terminated": torch.tensor([True, True]), "last_values": LAST}
    found = bilevel_gae(REWARDS, VALUES, TURNS, MASK, **rates, **ends)
    torch.testing.assert_close(found, monte_carlo(REWARDS, VALUES, MASK, gamma=1.0))


def test_turn_credit_ignores_padding_and_all_masked_rows():
    pad = torch.zeros(2, 3)
    wide = [torch.cat([x, pad.to(x.dtype) + fill], dim=1) for x, fill in ((REWARDS, 0), (VALUES, NAN), (TURNS, -1))]
    mask = torch.cat([MASK, pad.bool()], dim=1)
    wide, mask = [torch.cat([x, x[:1]]) for x in wide], torch.cat([mask, torch.zeros_like(mask[:1])])
    short_ends = {"terminated": torch.tensor([True, False]), "last_values": LAST}
    ends = {"terminated": torch.tensor([True, False, False]), "last_values": torch.cat([LAST, LAST[:1] + NAN])}
    found = bilevel_gae(*wide, mask, **RATES, **ends)
    torch.testing.assert_close(found[:2, :8], bilevel_gae(REWARDS, VALUES, TURNS, MASK, **RATES, **short_ends))
    assert torch.equal(found[~mask], torch.zeros_like(found[~mask]))


def test_monte_carlo_is_the_return_minus_the_value_on_counted_units():
    found = monte_carlo(REWARDS, VALUES, MASK, gamma=0.9)
    returns = discounted_returns(REWARDS, MASK, gamma=0.9)
    torch.testing.assert_close(found[MASK], returns[MASK] - VALUES[MASK])
    assert torch.equal(found[~MASK], torch.zeros_like(found[~MASK]))
    # the last counted unit of row 0 has 0.25 of its own and 3 from the masked unit behind it
    assert found[0, 6] == pytest.approx(3.25 - float(VALUES[0, 6]))
