import math

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from lookact.ops.masked import masked_max, masked_mean, masked_sum, masked_variance, whiten, zero_outside

NAN, INF = math.nan, math.inf
X = torch.tensor([[1.0, 2.0, NAN], [6.0, INF, -INF]])
MASK = torch.tensor([[True, True, False], [True, False, False]])


def test_sum_and_mean_read_counted_entries_only():
    assert masked_sum(X, MASK) == 9.0
    assert masked_mean(X, MASK) == 3.0
    assert masked_max(X, MASK) == 6.0
    # mean 3, squared distances 4 + 1 + 9
    assert masked_variance(X, MASK) == pytest.approx(14 / 3)


def test_parts_by_their_shares_add_up_to_the_mean_of_the_whole():
    x = torch.arange(12.0).reshape(4, 3)
    mask = torch.tensor([[1, 1, 1], [1, 0, 0], [0, 0, 0], [1, 1, 0]]).bool()
    parts = [masked_mean(x[i : i + 1], mask[i : i + 1]) * mask[i].sum() / mask.sum() for i in range(4)]
    assert sum(parts) == pytest.approx(float(masked_mean(x, mask)))


@pytest.mark.parametrize("shape", [(2, 3), (2, 0)])
def test_nothing_counted_gives_zero(shape):
    x, mask = torch.full(shape, NAN), torch.zeros(shape, dtype=torch.bool)
    for reduce in (masked_sum, masked_mean, masked_max, masked_variance):
        assert reduce(x, mask) == 0.0
    assert torch.equal(whiten(x, mask), torch.zeros(shape))


def test_masked_units_get_no_gradient():
    x = X.clone().requires_grad_()
    masked_mean(x, MASK).backward()
    assert torch.equal(x.grad, MASK.float() / 3)
    y = X.clone().requires_grad_()
    masked_mean(zero_outside(y, MASK).exp(), MASK).backward()
    assert torch.equal(y.grad != 0, MASK)
    assert y.grad.isfinite().all()


def test_an_axis_of_one_spreads_over_the_mask_and_a_missing_axis_raises():
    assert masked_sum(torch.tensor([[1.0], [10.0]]), MASK) == 12.0
    with pytest.raises(ValueError, match="add the missing axis"):
        masked_sum(torch.ones(2), torch.ones(2, 2, dtype=torch.bool))
    with pytest.raises(RuntimeError):
        masked_sum(torch.ones(2, 3), torch.ones(2, 1, dtype=torch.bool))


def test_whiten_of_two_values_is_plus_and_minus_one():
    out = whiten(torch.tensor([[3.0, NAN, 7.0]]), torch.tensor([[True, False, True]]))
    assert out[0].tolist() == pytest.approx([-1, 0, 1])


def test_whiten_of_one_or_of_equal_units_is_zero():
    assert torch.equal(whiten(X, MASK & (X == 6.0)), torch.zeros(2, 3))
    equal = torch.full((3, 7), 0.1)
    assert whiten(equal, torch.ones(3, 7, dtype=torch.bool)).abs().max() < 1e-6


@given(st.lists(st.floats(-(2.0**100), 2.0**100, width=32), min_size=2, max_size=20))
def test_whiten_has_mean_zero_and_deviation_one_or_zero(numbers):
    x = torch.tensor([numbers], dtype=torch.float32)
    out = whiten(x, torch.ones_like(x, dtype=torch.bool)).double()
    assert out.isfinite().all()
    assert abs(float(out.mean())) < 1e-5
    if float(x.double().std()) > 1e-3:
        assert float(out.std(correction=0)) == pytest.approx(1.0, abs=1e-3)


def test_processes_that_share_their_units_whiten_by_sums_over_all_of_them():
    # two processes with the same units, and two of which one has none
    assert torch.equal(whiten(X, MASK, sum_everywhere=lambda number: 2 * number), whiten(X, MASK))
    sums = iter([2.0, 10.0, 8.0])
    out = whiten(torch.tensor([[3.0]]), torch.tensor([[True]]), sum_everywhere=lambda number: next(sums))
    # 3 here and 7 there: mean 5, deviation 2
    assert out.item() == pytest.approx(-1.0)


def test_padding_does_not_leak_into_whitening():
    wide = torch.cat([X, torch.full((2, 4), NAN)], dim=1)
    mask = torch.cat([MASK, torch.zeros(2, 4, dtype=torch.bool)], dim=1)
    assert torch.equal(whiten(wide, mask)[:, :3], whiten(X, MASK))
