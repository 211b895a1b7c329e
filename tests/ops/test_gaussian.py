import math

import torch
from torch.distributions import Independent, Normal, TanhTransform, TransformedDistribution, kl_divergence

from lookact.ops.gaussian import gaussian_entropy, gaussian_kl, gaussian_logprob, squashed_logprob


def draw(*shape, seed):
    return torch.randn(*shape, dtype=torch.float64, generator=torch.Generator().manual_seed(seed))


ACTIONS, MEAN, LOG_STD = draw(3, 4, 2, seed=0), draw(3, 4, 2, seed=1), 0.5 * draw(3, 4, 2, seed=2)
NORMAL = Independent(Normal(MEAN, LOG_STD.exp()), 1)


def test_logprob_and_entropy_of_a_unit_gaussian_by_hand():
    zeros = torch.zeros(3)
    torch.testing.assert_close(gaussian_logprob(zeros, zeros, zeros), torch.tensor(-1.5 * math.log(2 * math.pi)))
    torch.testing.assert_close(
        gaussian_logprob(zeros + 2, zeros, zeros), torch.tensor(-1.5 * math.log(2 * math.pi) - 6)
    )
    torch.testing.assert_close(gaussian_entropy(zeros), torch.tensor(1.5 * math.log(2 * math.pi * math.e)))


def test_logprob_entropy_and_kl_agree_with_torch_distributions():
    torch.testing.assert_close(gaussian_logprob(ACTIONS, MEAN, LOG_STD), NORMAL.log_prob(ACTIONS))
    torch.testing.assert_close(gaussian_entropy(LOG_STD), NORMAL.entropy())
    other = Independent(Normal(ACTIONS, torch.ones_like(ACTIONS)), 1)
    torch.testing.assert_close(
        gaussian_kl(MEAN, LOG_STD, ACTIONS, torch.zeros_like(ACTIONS)), kl_divergence(NORMAL, other)
    )


def test_one_deviation_for_all_rows_spreads():
    shared = LOG_STD[0, 0]
    torch.testing.assert_close(
        gaussian_logprob(ACTIONS, MEAN, shared), gaussian_logprob(ACTIONS, MEAN, shared.expand_as(MEAN))
    )


def test_kl_of_a_gaussian_from_itself_is_zero():
    assert gaussian_kl(MEAN, LOG_STD, MEAN, LOG_STD).abs().max() < 1e-12


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
