import math

import pytest
import torch

from lookact.ops.losses import clipped_value_loss, explained_variance, huber_value_loss, value_loss

NAN, INF = math.nan, math.inf
MASK = torch.tensor([[1, 1, 0], [1, 0, 0], [0, 0, 0]]).bool()
VALUES = torch.tensor([[1.0, 2.0, NAN], [-1.0, INF, 0.0], [NAN, NAN, NAN]])
RETURNS = torch.tensor([[3.0, 2.0, INF], [0.0, NAN, 0.0], [1.0, 1.0, 1.0]])


def units(*numbers):
    return torch.tensor([numbers])


ALL = units(True)


def test_a_wide_clip_is_half_the_squared_error():
    loss, metrics = clipped_value_loss(VALUES, VALUES, RETURNS, MASK, clip=1e9)
    assert loss == pytest.approx((4 + 0 + 1) / 2 / 3)
    assert metrics["clip_fraction"] == 0.0


@pytest.mark.parametrize(
    ("value", "target", "loss", "moves"),
    [
        (0.1, 1.0, 0.405, True),  # inside the clip
        (0.5, 1.0, 0.32, False),  # went 0.5 towards the target: only 0.2 is believed
        (-0.5, 1.0, 1.125, True),  # went away from the target: the full error counts
        (2.0, 1.0, 0.5, True),  # overshot by more than the clipped value falls short
    ],
)
def test_a_value_that_ran_to_its_target_stops(value, target, loss, moves):
    values = units(value).requires_grad_()
    found, _ = clipped_value_loss(values, units(0.0), units(target), ALL, clip=0.2)
    found.backward()
    assert found.item() == pytest.approx(loss)
    assert bool(values.grad != 0) is moves


def test_huber_is_square_near_and_linear_far():
    assert huber_value_loss(units(0.5), units(0.0), ALL, delta=1.0)[0].item() == pytest.approx(0.125)
    assert huber_value_loss(units(3.0), units(0.0), ALL, delta=1.0)[0].item() == pytest.approx(2.5)
    far = units(1e30).requires_grad_()
    loss, _ = huber_value_loss(far, units(-1e30), ALL, delta=0.5)
    loss.backward()
    assert loss.isfinite()
    assert far.grad.item() == 0.5


LOSSES = [
    lambda v, r, m, **k: clipped_value_loss(v, torch.where(m, v.detach() + 0.1, NAN), r, m, clip=0.5, **k),
    lambda v, r, m, **k: huber_value_loss(v, r, m, delta=1.0, **k),
]


@pytest.mark.parametrize("loss_of", LOSSES)
def test_masked_units_get_no_gradient(loss_of):
    values = VALUES.clone().requires_grad_()
    returns = RETURNS.clone().requires_grad_()
    loss, metrics = loss_of(values, returns, MASK)
    loss.backward()
    assert torch.equal(values.grad != 0, MASK & (VALUES != RETURNS))
    assert values.grad.isfinite().all()
    assert returns.grad is None
    assert all(x.isfinite() and not x.requires_grad for x in metrics.values())


@pytest.mark.parametrize("loss_of", LOSSES)
def test_micro_batches_by_their_shares_add_up(loss_of):
    whole = loss_of(VALUES, RETURNS, MASK)[0]
    rows = [slice(i, i + 1) for i in range(3)]
    parts = sum(loss_of(VALUES[i], RETURNS[i], MASK[i])[0] * MASK[i].sum() / MASK.sum() for i in rows)
    torch.testing.assert_close(parts, whole)


@pytest.mark.parametrize("loss_of", LOSSES)
def test_nothing_counted_is_zero(loss_of):
    values = VALUES.clone().requires_grad_()
    loss, _ = loss_of(values, RETURNS, torch.zeros_like(MASK))
    loss.backward()
    assert loss == 0.0
    assert torch.equal(values.grad, torch.zeros(3, 3))


def test_explained_variance_of_perfect_constant_and_reversed_values():
    returns, mask = units(1.0, 2.0, 6.0, NAN), units(True, True, True, False)
    assert explained_variance(returns, returns, mask) == 1.0
    assert explained_variance(units(4.0, 4.0, 4.0, INF), returns, mask) == pytest.approx(0.0)
    # a constant offset is a bias, not missing variance
    assert explained_variance(returns + 10, returns, mask) == pytest.approx(1.0)
    assert explained_variance(-returns, returns, mask) == pytest.approx(-3.0)


def test_explained_variance_is_zero_where_returns_do_not_vary():
    assert explained_variance(units(1.0, 2.0), units(3.0, 3.0), units(True, True)) == 0.0
    assert explained_variance(units(1.0, 2.0), units(3.0, 4.0), units(True, False)) == 0.0
    assert explained_variance(units(NAN), units(NAN), units(False)) == 0.0


def test_a_value_loss_by_its_name():
    values, old, returns, mask = units(2.0), units(0.0), units(1.0), torch.ones(1, 1, dtype=torch.bool)
    # clipped to 0.5 from the old value the error is 0.5, unclipped it is 1; Huber's is linear beyond 0.5
    assert float(value_loss(values, old, returns, mask, kind="clipped", clip=0.5)) == pytest.approx(0.5)
    assert float(value_loss(values, old, returns, mask, kind="huber", clip=0.5)) == pytest.approx(0.5 * (1.0 - 0.25))
