import math

import pytest
import torch
from torch.distributions import Normal, TanhTransform, TransformedDistribution

from lookact.ops.sac_loss import (
    actor_loss,
    critic_loss,
    critic_target,
    polyak_update,
    squashed_logprob,
    temperature_loss,
)


def test_target_by_hand_and_terminated_steps_never_bootstrap():
    found = critic_target(
        torch.tensor([1.0, 2.0]),
        torch.tensor([False, True]),
        torch.tensor([10.0, math.nan]),
        torch.tensor([-2.0, math.inf]),
        gamma=0.9,
        alpha=0.5,
    )
    assert found.tolist() == pytest.approx([1 + 0.9 * 11, 2.0])


def test_target_is_a_constant():
    next_q, alpha = torch.ones(1, requires_grad=True), torch.tensor(0.1, requires_grad=True)
    target = critic_target(torch.ones(1), torch.tensor([False]), next_q, next_q, gamma=0.9, alpha=alpha)
    assert not target.requires_grad


def test_critics_are_summed_and_each_gets_its_own_error():
    q = torch.tensor([[1.0, 3.0], [2.0, 2.0]], requires_grad=True)
    target = torch.tensor([0.0, 2.0], requires_grad=True)
    loss, metrics = critic_loss(q, target)
    loss.backward()
    # (1 + 1)/2/2 + (4 + 0)/2/2
    assert loss.item() == 1.5
    assert q.grad.tolist() == [[0.5, 0.5], [1.0, 0.0]]
    assert target.grad is None
    assert metrics["q"] == 2.0
    assert metrics["td_error"] == 1.0


def test_actor_loss_by_hand_leaves_alpha_alone():
    logprobs, q = torch.tensor([-1.0, -3.0], requires_grad=True), torch.tensor([5.0, 7.0], requires_grad=True)
    alpha = torch.tensor(0.5, requires_grad=True)
    loss, metrics = actor_loss(logprobs, q, alpha=alpha)
    loss.backward()
    assert loss.item() == pytest.approx(-1.0 - 6.0)
    assert logprobs.grad.tolist() == [0.25, 0.25]
    assert q.grad.tolist() == [-0.5, -0.5]
    assert alpha.grad is None
    assert metrics["entropy"] == 2.0


@pytest.mark.parametrize(("entropy", "gradient"), [(3.0, 0.3), (1.0, -0.3), (2.0, 0.0)])
def test_temperature_falls_above_the_target_entropy_and_rises_below(entropy, gradient):
    log_alpha = torch.tensor(math.log(0.3), requires_grad=True)
    logprobs = torch.full((4,), -entropy, requires_grad=True)
    loss, metrics = temperature_loss(log_alpha, logprobs, target_entropy=2.0)
    loss.backward()
    assert log_alpha.grad.item() == pytest.approx(gradient)
    assert logprobs.grad is None
    assert metrics["alpha"] == pytest.approx(0.3)


def draw(*shape, seed):
    return torch.randn(*shape, dtype=torch.float64, generator=torch.Generator().manual_seed(seed))


ACTIONS, MEAN, LOG_STD = draw(3, 4, 2, seed=0), draw(3, 4, 2, seed=1), 0.5 * draw(3, 4, 2, seed=2)


def test_squashed_logprob_agrees_with_the_change_of_variables():
    raw = ACTIONS.clamp(-3, 3)
    squashed = TransformedDistribution(Normal(MEAN, LOG_STD.exp()), TanhTransform())
    torch.testing.assert_close(
        squashed_logprob(raw, (raw - MEAN) / LOG_STD.exp(), LOG_STD), squashed.log_prob(raw.tanh()).sum(-1)
    )


def test_squashed_density_integrates_to_one():
    actions = torch.linspace(-1, 1, 200_003, dtype=torch.float64)[1:-1]
    raw, log_std = actions.atanh()[:, None], torch.tensor([-0.2])
    density = squashed_logprob(raw, (raw - 0.3) / log_std.exp(), log_std).exp()
    torch.testing.assert_close(
        torch.trapezoid(density, actions), torch.tensor(1.0, dtype=torch.float64), rtol=1e-4, atol=0
    )


def test_squashed_logprob_is_finite_where_tanh_rounds_to_one():
    raw = torch.tensor([[30.0], [-30.0], [1e4]], requires_grad=True)
    assert raw.detach().tanh().abs().min() == 1.0
    out = squashed_logprob(raw, torch.zeros(3, 1), torch.zeros(1))
    out.sum().backward()
    # log(1 − tanh²x) → log 4 − 2|x|
    torch.testing.assert_close(out[0], torch.tensor(-0.5 * math.log(2 * math.pi) - math.log(4) + 60))
    assert out.isfinite().all()
    assert raw.grad.flatten().tolist() == [2.0, -2.0, 2.0]


def test_polyak_moves_targets_by_tau_and_leaves_sources():
    target, source = torch.tensor([0.0, 4.0]), torch.tensor([8.0, 4.0])
    polyak_update([target], [source], tau=0.25)
    assert target.tolist() == [2.0, 4.0]
    assert source.tolist() == [8.0, 4.0]
