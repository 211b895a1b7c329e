import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from lookact.ops.control_loss import Steps, critic_loss, gaussian_ppo
from lookact.ops.gaussian import gaussian_entropy, gaussian_kl, gaussian_logprob
from lookact.ops.policy_loss import ppo_clip
from lookact.ops.value_loss import clipped_value_loss, huber_value_loss

SETTINGS = {"clip": 0.2, "clip_high": 0.3, "value_coef": 0.7, "value_clip": 0.5, "entropy_coef": 0.01}


def case(seed, n=12, a=3):
    """A policy's view of steps, and steps sampled by one that was near it."""
    generator = torch.Generator().manual_seed(seed)

    def draw(*shape, scale=1.0):
        return scale * torch.randn(*shape, dtype=torch.float64, generator=generator)

    mean, log_std, values = draw(n, a), draw(a, scale=0.3), draw(n)
    actions = mean + draw(n, a)
    old = gaussian_logprob(actions, mean, log_std) + draw(n, scale=0.4)
    steps = Steps(actions, old, draw(n), draw(n), draw(n))
    leaves = [x.requires_grad_() for x in (mean, log_std, values)]
    return leaves, steps, (draw(n, a), draw(a, scale=0.2))


def summed(leaves, steps, huber, reference):
    """The same loss by autograd through the separate losses."""
    mean, log_std, values = leaves
    mask = torch.ones(len(values), 1, dtype=torch.bool)
    columns = [x.unsqueeze(1) for x in (steps.old_logprobs, steps.old_values, steps.advantages, steps.returns)]
    logprobs = gaussian_logprob(steps.actions, mean, log_std).unsqueeze(1)
    surrogate, parts = ppo_clip(logprobs, columns[0], columns[2], mask, clip=0.2, clip_high=0.3)
    if huber is None:
        value, _ = clipped_value_loss(values.unsqueeze(1), columns[1], columns[3], mask, clip=0.5)
    else:
        value, _ = huber_value_loss(values.unsqueeze(1), columns[3], mask, delta=huber)
    away = gaussian_kl(mean, log_std, *reference).mean()
    return surrogate + 0.7 * value - 0.01 * gaussian_entropy(log_std) + 0.3 * away, parts


@given(seed=st.integers(0, 10**6), huber=st.sampled_from([None, 0.7, 1e9]))
def test_value_and_gradient_are_those_of_the_separate_losses(seed, huber):
    leaves, steps, reference = case(seed)
    loss, metrics = gaussian_ppo(*leaves, steps, **SETTINGS, huber=huber, kl_coef=0.3, reference=reference)
    expected, parts = summed(leaves, steps, huber, reference)
    torch.testing.assert_close(loss, expected)
    for found, wanted in zip(torch.autograd.grad(loss, leaves), torch.autograd.grad(expected, leaves)):
        torch.testing.assert_close(found, wanted)
    for name in ("clip_fraction", "approx_kl"):
        assert float(metrics[f"policy/{name}"]) == pytest.approx(float(parts[name]))


def test_by_hand():
    # ratio e^0.5 is above 1.2: with a positive advantage the objective stands still at 1.2·2
    mean = torch.zeros(1, 1, requires_grad=True)
    values = torch.tensor([3.0], requires_grad=True)
    old = gaussian_logprob(torch.ones(1, 1), torch.zeros(1, 1), torch.zeros(1)) - 0.5
    steps = Steps(torch.ones(1, 1), old, torch.zeros(1), torch.tensor([2.0]), torch.tensor([1.0]))
    fixed = {"clip": 0.2, "clip_high": 0.2, "value_coef": 1.0, "value_clip": 9.0, "entropy_coef": 0.0}
    loss, _ = gaussian_ppo(mean, torch.zeros(1), values, steps, **fixed, huber=1.0)
    loss.backward()
    # value: |3 − 1| is beyond 1, so 1·(2 − 0.5), with slope 1
    assert loss.item() == pytest.approx(-2.4 + 1.5)
    assert (mean.grad.item(), values.grad.item()) == (0.0, 1.0)


def test_at_the_old_policy_it_is_the_policy_gradient():
    leaves, steps, _ = case(3)
    old = gaussian_logprob(steps.actions, leaves[0], leaves[1]).detach()
    steps = Steps(steps.actions, old, steps.old_values, steps.advantages, steps.returns)
    loss, metrics = gaussian_ppo(*leaves, steps, **SETTINGS | {"entropy_coef": 0.0}, huber=1.0)
    plain = -(steps.advantages * gaussian_logprob(steps.actions, leaves[0], leaves[1])).mean()
    torch.testing.assert_close(torch.autograd.grad(loss, leaves[0])[0], torch.autograd.grad(plain, leaves[0])[0])
    assert float(metrics["policy/approx_kl"]) == pytest.approx(0.0, abs=1e-12)


def test_a_fixed_spread_gets_no_gradient():
    (mean, log_std, values), steps, _ = case(4)
    loss, _ = gaussian_ppo(mean, log_std.detach(), values, steps, **SETTINGS, huber=1.0)
    loss.backward()
    assert log_std.grad is None
    assert mean.grad.abs().sum() > 0


def test_a_runaway_ratio_stays_finite_and_pulls_at_nothing():
    (mean, log_std, values), steps, _ = case(5)
    steps = Steps(
        steps.actions,
        steps.old_logprobs - 500.0,
        *(vars(steps)[name] for name in ("old_values", "advantages", "returns")),
    )
    loss, _ = gaussian_ppo(mean, log_std, values, steps, **SETTINGS, huber=1.0)
    loss.backward()
    assert torch.isfinite(loss)
    assert mean.grad.abs().sum() == 0


def test_the_critic_alone_has_the_value_part():
    (mean, log_std, values), steps, _ = case(6)
    loss, _ = critic_loss(values, steps, huber=0.7, value_clip=0.5)
    wanted, _ = huber_value_loss(values.unsqueeze(1), steps.returns.unsqueeze(1), torch.ones(12, 1).bool(), delta=0.7)
    torch.testing.assert_close(loss, wanted)
    torch.testing.assert_close(torch.autograd.grad(loss, values)[0], torch.autograd.grad(wanted, values)[0])
