import itertools
import math

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from lookact.ops.advantages import credit_rewards, discounted_returns, gae, lambda_returns

NAN = math.nan


def row(*numbers, dtype=torch.float64):
    return torch.tensor([numbers], dtype=dtype)


def flags(*numbers):
    return torch.tensor([numbers]).bool()


def draw(*shape, seed=0):
    return torch.randn(*shape, dtype=torch.float64, generator=torch.Generator().manual_seed(seed))


def brute_force(rewards, values, ends, after, gamma, lam):
    """Advantages of one row without a mask, as the explicit sum of (γλ)^l δ_{t+l} up to the episode's end."""
    steps = len(rewards)
    following = [after[t] if ends[t] or t == steps - 1 else values[t + 1] for t in range(steps)]
    out = []
    for t in range(steps):
        stop = next((i for i in range(t, steps) if ends[i]), steps - 1)
        deltas = [rewards[i] + gamma * following[i] - values[i] for i in range(t, stop + 1)]
        out.append(sum((gamma * lam) ** l * d for l, d in enumerate(deltas)))
    return out


@pytest.mark.parametrize("kinds", itertools.product("-te", repeat=4))
def test_gae_is_the_brute_force_sum_with_ends_in_every_position(kinds):
    rewards, values, finals = draw(4, seed=1), draw(4, seed=2), draw(4, seed=3)
    last = 0.7
    terminated, truncated = flags(*(k == "t" for k in kinds)), flags(*(k == "e" for k in kinds))
    after = [0.0 if k == "t" else float(finals[i]) if k == "e" else last for i, k in enumerate(kinds)]
    expected = brute_force(rewards.tolist(), values.tolist(), [k != "-" for k in kinds], after, 0.9, 0.8)
    found = gae(
        rewards[None],
        values[None],
        terminated,
        flags(1, 1, 1, 1),
        gamma=0.9,
        lam=0.8,
        last_values=torch.tensor([last]),
        truncated=truncated,
        truncated_values=finals[None].masked_fill(~truncated, NAN),
    )
    assert found[0].tolist() == pytest.approx(expected)


def test_gae_by_hand():
    # δ = [1 + .5·4 − 2, 2 + .5·8 − 4] = [1, 2]; A_0 = 1 + .5·.5·2
    found = gae(row(1, 2), row(2, 4), flags(0, 0), flags(1, 1), gamma=0.5, lam=0.5, last_values=torch.tensor([8.0]))
    assert found.tolist() == [[1.5, 2.0]]
    found = gae(row(1, 2), row(2, 4), flags(0, 1), flags(1, 1), gamma=0.5, lam=0.5, last_values=torch.tensor([NAN]))
    assert found.tolist() == [[0.5, -2.0]]


def test_gae_lambda_one_is_return_minus_value():
    rewards, values, mask = draw(3, 6), draw(3, 6, seed=5), torch.ones(3, 6, dtype=torch.bool)
    found = gae(rewards, values, ~mask, mask, gamma=0.9, lam=1.0, last_values=torch.zeros(3))
    torch.testing.assert_close(found, discounted_returns(rewards, mask, gamma=0.9) - values)


def test_gae_lambda_zero_is_the_one_step_error():
    rewards, values, mask, last = draw(3, 6), draw(3, 6, seed=5), torch.ones(3, 6, dtype=torch.bool), draw(3, seed=6)
    found = gae(rewards, values, ~mask, mask, gamma=0.9, lam=0.0, last_values=last)
    torch.testing.assert_close(found, rewards + 0.9 * torch.cat([values[:, 1:], last[:, None]], dim=1) - values)


def test_a_perfect_critic_leaves_no_advantage():
    rewards, mask = draw(2, 5), torch.ones(2, 5, dtype=torch.bool)
    values = discounted_returns(rewards, mask, gamma=0.9)
    found = gae(rewards, values, ~mask, mask, gamma=0.9, lam=0.7, last_values=torch.zeros(2))
    assert found.abs().max() < 1e-12


@given(st.lists(st.sampled_from("cm"), min_size=1, max_size=8), st.integers(0, 1000))
def test_masked_units_are_as_if_not_there(pattern, seed):
    mask = flags(*(kind == "c" for kind in pattern))
    rewards, values = draw(1, len(pattern), seed=seed), draw(1, len(pattern), seed=seed + 1)
    counted = int(mask.sum())
    credited = credit_rewards(rewards, mask)
    short = gae(
        credited[mask][None],
        values[mask][None],
        torch.zeros(1, counted, dtype=torch.bool),
        torch.ones(1, counted, dtype=torch.bool),
        gamma=0.9,
        lam=0.8,
        last_values=torch.tensor([0.3]),
    )
    noisy = values.masked_fill(~mask, NAN)
    found = gae(rewards, noisy, torch.zeros_like(mask), mask, gamma=0.9, lam=0.8, last_values=torch.tensor([0.3]))
    torch.testing.assert_close(found[mask][None], short)
    assert torch.equal(found[~mask], torch.zeros_like(found[~mask]))


def test_a_reward_on_a_masked_unit_goes_undiscounted_to_the_counted_unit_before():
    mask = flags(0, 1, 0, 0, 1, 0)
    rewards = row(100, 1, 2, 3, 4, 5)
    assert credit_rewards(rewards, mask).tolist() == [[0, 6, 0, 0, 9, 0]]
    assert discounted_returns(rewards, mask, gamma=0.5).tolist() == [[0, 10.5, 0, 0, 9, 0]]


def test_an_end_on_a_masked_unit_ends_the_counted_unit_before():
    # the reward 9 that follows the end belongs to the next episode's start and is dropped
    found = gae(
        row(0, 5, 9, 1),
        row(1, NAN, NAN, 2),
        flags(0, 1, 0, 0),
        flags(1, 0, 0, 1),
        gamma=0.5,
        lam=1.0,
        last_values=torch.tensor([10.0]),
    )
    assert found.tolist() == [[4.0, 0.0, 0.0, 4.0]]


def test_terminated_wins_over_truncated():
    both = {"truncated": flags(1), "truncated_values": row(50)}
    found = gae(row(1), row(0), flags(1), flags(1), gamma=1.0, lam=1.0, last_values=torch.tensor([7.0]), **both)
    assert found.item() == 1.0


def test_right_padding_does_not_leak_and_still_bootstraps():
    rewards, values, last = draw(2, 4), draw(2, 4, seed=1), torch.tensor([0.5, -0.5], dtype=torch.float64)
    mask = torch.ones(2, 4, dtype=torch.bool)
    short = gae(rewards, values, ~mask, mask, gamma=0.9, lam=0.9, last_values=last)
    pad = torch.zeros(2, 3, dtype=torch.float64)
    wide_mask = torch.cat([mask, pad.bool()], dim=1)
    found = gae(
        torch.cat([rewards, pad], dim=1),
        torch.cat([values, pad + NAN], dim=1),
        torch.zeros_like(wide_mask),
        wide_mask,
        gamma=0.9,
        lam=0.9,
        last_values=last,
    )
    assert torch.equal(found, torch.cat([short, pad], dim=1))


def test_rows_do_not_mix_and_all_masked_rows_are_zero():
    rewards, values = draw(3, 5), draw(3, 5, seed=1)
    mask = torch.tensor([[1, 1, 1, 1, 1], [0, 0, 0, 0, 0], [1, 0, 1, 0, 0]]).bool()
    last = torch.tensor([1.0, NAN, 2.0], dtype=torch.float64)
    together = gae(rewards, values, torch.zeros_like(mask), mask, gamma=0.9, lam=0.9, last_values=last)
    for i in (0, 2):
        one = slice(i, i + 1)
        alone = gae(
            rewards[one], values[one], torch.zeros_like(mask[one]), mask[one], gamma=0.9, lam=0.9, last_values=last[one]
        )
        assert torch.equal(together[one], alone)
    assert torch.equal(together[1], torch.zeros(5, dtype=torch.float64))


def test_advantages_carry_no_gradient():
    values = draw(1, 3).requires_grad_()
    found = gae(row(1, 2, 3), values, flags(0, 0, 1), flags(1, 1, 1), gamma=1.0, lam=1.0, last_values=torch.zeros(1))
    assert not found.requires_grad


def test_shapes_that_would_broadcast_raise():
    mask = torch.ones(2, 2, dtype=torch.bool)
    x = torch.zeros(2, 2)
    with pytest.raises(ValueError, match="one of each a unit"):
        gae(x, x, torch.zeros(2, dtype=torch.bool), mask, gamma=1.0, lam=1.0, last_values=torch.zeros(2))
    with pytest.raises(ValueError, match="one last value a row"):
        gae(x, x, ~mask, mask, gamma=1.0, lam=1.0, last_values=torch.zeros(2, 1))
    with pytest.raises(ValueError, match="go together"):
        gae(x, x, ~mask, mask, gamma=1.0, lam=1.0, last_values=torch.zeros(2), truncated=mask)


def test_lambda_returns_by_hand():
    rewards, discounts, values = row(1.0, 0.0, 2.0), row(0.5, 1.0, 0.5), row(4.0, 2.0, 8.0)
    # the last: 2 + 0.5·8; before it: 0 + 1·(0.75·2 + 0.25·6); the first: 1 + 0.5·(0.75·4 + 0.25·3)
    assert lambda_returns(rewards, discounts, values, lam=0.25).tolist() == [[2.875, 3.0, 6.0]]


def test_lambda_zero_looks_one_step_ahead_and_one_to_the_end():
    rewards, values = draw(3, 5, seed=1), draw(3, 5, seed=2)
    discounts = torch.full_like(rewards, 0.9)
    torch.testing.assert_close(lambda_returns(rewards, discounts, values, lam=0.0), rewards + 0.9 * values)
    powers = 0.9 ** torch.arange(6, dtype=torch.float64)
    whole = (rewards * powers[:5]).sum(dim=1) + powers[5] * values[:, -1]
    torch.testing.assert_close(lambda_returns(rewards, discounts, values, lam=1.0)[:, 0], whole)


def test_lambda_returns_are_gae_and_values_where_nothing_ends():
    rewards, values, last = draw(2, 6, seed=3), draw(2, 6, seed=4), draw(2, seed=5)
    counts = torch.ones(2, 6, dtype=torch.bool)
    advantages = gae(rewards, values, ~counts, counts, gamma=0.9, lam=0.7, last_values=last)
    after = torch.cat([values[:, 1:], last[:, None]], dim=1)
    found = lambda_returns(rewards, torch.full_like(rewards, 0.9), after, lam=0.7)
    torch.testing.assert_close(found, advantages + values)


def test_what_comes_after_a_certain_end_does_not_count():
    found = lambda_returns(row(1.0, 5.0, 5.0), row(0.0, 0.9, 0.9), row(7.0, 7.0, 7.0), lam=0.95)
    assert found[0, 0].item() == 1.0
