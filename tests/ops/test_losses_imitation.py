import math

import pytest
import torch

from lookact.ops.losses import action_mse, gaussian_nll, nll, token_accuracy

NAN, INF = math.nan, math.inf
MASK = torch.tensor([[1, 1], [1, 0], [0, 0]]).bool()
ACTIONS = torch.tensor([[[1.0, 2.0], [0.0, 0.0]], [[3.0, 1.0], [NAN, INF]], [[NAN, 1.0], [1.0, 1.0]]])
PREDICTED = torch.tensor([[[1.0, 0.0], [0.0, 2.0]], [[3.0, 1.0], [1.0, NAN]], [[1.0, 1.0], [INF, 1.0]]])


def test_nll_is_minus_the_mean_of_counted_units():
    logprobs = torch.tensor([[-1.0, -2.0], [-3.0, -INF], [NAN, INF]], requires_grad=True)
    loss, metrics = nll(logprobs, MASK)
    loss.backward()
    assert loss.item() == 2.0
    assert metrics["nll"] == 2.0
    assert torch.equal(logprobs.grad, -MASK.float() / 3)
    assert nll(logprobs, torch.zeros_like(MASK))[0].item() == 0.0


def test_mse_by_hand():
    loss, metrics = action_mse(PREDICTED, ACTIONS, MASK)
    # 4/2, 4/2 and 0 over three units
    assert loss.item() == pytest.approx(4 / 3)
    assert metrics["mse"] == pytest.approx(4 / 3)


def test_gaussian_nll_with_unit_deviation_is_half_the_squared_error_and_a_constant():
    loss, _ = gaussian_nll(ACTIONS, PREDICTED, torch.zeros(2), MASK)
    assert loss.item() == pytest.approx(4 / 3 + math.log(2 * math.pi))


@pytest.mark.parametrize("loss_of", [action_mse, lambda p, a, m: gaussian_nll(a, p, torch.zeros(2), m)])
def test_masked_units_get_no_gradient(loss_of):
    predicted = PREDICTED.clone().requires_grad_()
    loss_of(predicted, ACTIONS, MASK)[0].backward()
    assert predicted.grad.isfinite().all()
    wrong = MASK[..., None] & (PREDICTED != ACTIONS)
    assert torch.equal(predicted.grad != 0, wrong)


def test_gaussian_nll_gradient_of_a_shared_deviation_reads_counted_units_only():
    log_std = torch.zeros(2, requires_grad=True)
    gaussian_nll(ACTIONS, PREDICTED, log_std, MASK)[0].backward()
    # 1 − mean squared error of each dimension
    assert log_std.grad.tolist() == pytest.approx([1.0, 1 - 8 / 3])


def test_padding_does_not_leak():
    pad = torch.full((3, 4, 2), NAN)
    wide_mask = torch.cat([MASK, torch.zeros(3, 4, dtype=torch.bool)], dim=1)
    wide = action_mse(torch.cat([PREDICTED, pad], dim=1), torch.cat([ACTIONS, pad], dim=1), wide_mask)[0]
    torch.testing.assert_close(wide, action_mse(PREDICTED, ACTIONS, MASK)[0])


def test_token_accuracy_counts_hits_inside_the_mask():
    logits = torch.tensor([[[0.0, 1.0], [2.0, -INF]], [[0.0, 5.0], [NAN, 0.0]], [[0.0, 1.0], [0.0, 1.0]]])
    assert token_accuracy(logits, torch.tensor([[1, 0], [0, 0], [1, 1]]), MASK) == pytest.approx(2 / 3)
    assert token_accuracy(logits, torch.zeros(3, 2).long(), torch.zeros_like(MASK)) == 0.0
