import math

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from lookact.ops.losses import AdaptiveKL, bounded_ratio, k1, k2, k3, kl_loss

NAN, INF = math.nan, math.inf
POLICY = torch.tensor([0.5, 0.3, 0.2], dtype=torch.float64)
REFERENCE = torch.tensor([0.2, 0.2, 0.6], dtype=torch.float64)


def test_estimators_by_hand():
    p, ref = torch.tensor(math.log(0.5)), torch.tensor(math.log(0.25))
    assert k1(p, ref) == pytest.approx(math.log(2))
    assert k2(p, ref) == pytest.approx(math.log(2) ** 2 / 2)
    assert k3(p, ref) == pytest.approx(0.5 - 1 + math.log(2))


def test_k3_of_a_small_gap_keeps_its_digits_in_float32():
    assert k3(torch.tensor(0.0), torch.tensor(1e-4)) == pytest.approx(5e-9, rel=0.01)


def test_k1_and_k3_average_to_the_exact_kl():
    exact = float((POLICY * (POLICY / REFERENCE).log()).sum())
    for estimator in (k1, k3):
        assert float((POLICY * estimator(POLICY.log(), REFERENCE.log())).sum()) == pytest.approx(exact)


def expected_gradient(estimator):
    """Mean over the policy of the estimator's gradient, as a loss on sampled units sees it."""
    logits = POLICY.log().requires_grad_()
    logprobs = logits.log_softmax(-1)
    (POLICY * estimator(logprobs, REFERENCE.log())).sum().backward()
    return logits.grad


def test_gradients_of_the_estimators_are_those_the_module_states():
    logits = POLICY.log().requires_grad_()
    logprobs = logits.log_softmax(-1)
    reverse = torch.autograd.grad((logprobs.exp() * (logprobs - REFERENCE.log())).sum(), logits, retain_graph=True)[0]
    forward = torch.autograd.grad(-(REFERENCE * logprobs).sum(), logits)[0]
    assert expected_gradient(k1).abs().max() < 1e-12
    torch.testing.assert_close(expected_gradient(k2), reverse)
    torch.testing.assert_close(expected_gradient(k3), forward)


@given(st.floats(-50, 0), st.floats(-50, 0))
def test_k2_and_k3_are_never_negative(first, second):
    p, ref = torch.tensor(first), torch.tensor(second)
    assert k2(p, ref) >= 0
    assert k3(p, ref) >= 0


def test_far_gaps_stay_finite():
    for gap in (1e30, -1e30):
        p = torch.tensor(gap, requires_grad=True)
        out = k3(p, torch.tensor(0.0))
        out.backward()
        assert out.isfinite()
        assert p.grad.isfinite()
    assert bounded_ratio(torch.tensor([1e30, -INF]), torch.zeros(2)).tolist() == pytest.approx(
        [math.exp(20), math.exp(-20)]
    )


@pytest.mark.parametrize("estimator", [k1, k2, k3])
def test_masked_units_get_no_gradient(estimator):
    logprobs = torch.tensor([[-1.0, NAN, -INF], [-2.0, INF, -1.0]], requires_grad=True)
    ref = torch.tensor([[-1.5, 0.0, -INF], [-1.0, NAN, -3.0]])
    mask = torch.tensor([[1, 0, 0], [1, 0, 1]]).bool()
    loss, metrics = kl_loss(logprobs, ref, mask, estimator=estimator)
    loss.backward()
    assert torch.equal(logprobs.grad != 0, mask)
    assert logprobs.grad.isfinite().all()
    wanted = estimator(torch.tensor([-1.0, -2.0, -1.0]), torch.tensor([-1.5, -1.0, -3.0])).mean()
    assert float(loss.detach()) == pytest.approx(float(wanted))
    assert metrics["kl_k1"] == pytest.approx((0.5 - 1 + 2) / 3)
    assert not metrics["kl"].requires_grad


def test_kl_loss_survives_an_empty_mask():
    logprobs, mask = torch.tensor([[-1.0, -2.0]]), torch.tensor([[True, True]])
    assert kl_loss(logprobs * NAN, logprobs, ~mask)[0] == 0.0


@pytest.mark.parametrize(("kl", "factor"), [(0.02, 1.0), (0.022, 1.01), (5.0, 1.02), (0.0, 0.98), (-3.0, 0.98)])
def test_the_coefficient_follows_its_target(kl, factor):
    controller = AdaptiveKL(0.2, 0.02, 1000)
    assert controller.update(kl, 100) == pytest.approx(0.2 * factor)
    assert controller.coef == pytest.approx(0.2 * factor)


def test_a_resumed_coefficient_goes_on_bit_for_bit():
    controller, resumed = AdaptiveKL(0.2, 0.02, 1000), AdaptiveKL(0.5, 0.02, 1000)
    controller.update(0.05, 37)
    resumed.load_state_dict(controller.state_dict())
    assert resumed.update(0.001, 91) == controller.update(0.001, 91)


def test_what_the_coefficient_cannot_follow_raises():
    with pytest.raises(ValueError, match="the KL is nan"):
        AdaptiveKL(0.2, 0.02, 1000).update(NAN, 1)
    with pytest.raises(ValueError, match="lengthen"):
        AdaptiveKL(0.2, 0.02, 10).update(0.0, 50)
    with pytest.raises(ValueError, match="target 0"):
        AdaptiveKL(0.2, 0, 10)
