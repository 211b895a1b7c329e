import math

import torch
from torch.distributions import Independent, Normal, kl_divergence

from lookact.ops.logprobs import gaussian_entropy, gaussian_kl, gaussian_logprob


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
