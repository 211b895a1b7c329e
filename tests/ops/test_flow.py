"""Flow matching and denoising chains, against densities worked out in other ways."""

import math

import pytest
import torch
from scipy import stats

from lookact.ops.flow import chain_times, euler_step, interpolate, sample_chain, score_chain, sde_step
from lookact.ops.logprobs import gaussian_entropy, gaussian_kl, gaussian_logprob
from lookact.ops.losses import action_mse, ppo_clip

GRID = torch.linspace(-6, 6, 601, dtype=torch.float64)
WIDTH = float(GRID[1] - GRID[0])


def curved(x, time):
    """A velocity that bends space, never so much that paths cross in a step."""
    return 0.8 * torch.tanh(1.5 * x) + 0.5 * time.unsqueeze(-1) * torch.sin(x) - 0.4


def noisy_step(steps, log_std=-0.7):
    """Flow-Noise: the deviation depends on where and when."""

    def step(x, time):
        return euler_step(x, curved(x, time), steps=steps), log_std + 0.3 * torch.cos(x) * time.unsqueeze(-1)

    return step


def sde(steps, level=0.5):
    def step(x, time):
        return sde_step(x, curved(x, time), time, torch.tensor([level], dtype=x.dtype), steps=steps)

    return step


def chain_logprob(step, chain):
    """The density of whole chains (b, K + 1, n)."""
    mean, log_std = score_chain(step, chain)
    return gaussian_logprob(chain.flatten(1), mean.flatten(1), log_std.flatten(1))


@pytest.mark.parametrize("make", [noisy_step, sde])
def test_the_chains_density_integrates_to_the_marginal_of_its_end(make):
    steps = 2
    step = make(steps)
    # brute force: densities on a grid, carried through the transitions by scipy's own Gaussians
    density = torch.from_numpy(stats.norm.pdf(GRID.numpy()))
    for time in chain_times(steps).double():
        mean, log_std = step(GRID[:, None], time.expand(len(GRID)))
        density = torch.from_numpy(
            stats.norm.pdf(GRID.numpy()[None], mean.numpy(), log_std.exp().numpy()) * density.numpy()[:, None]
        ).sum(dim=0)
        density = density * WIDTH
    # the chain's log-prob, integrated over all that came before the end
    nodes = torch.linspace(-6, 6, 241, dtype=torch.float64)
    first, second = torch.meshgrid(nodes, nodes, indexing="ij")
    for end in (-1.0, 0.2, 1.5):
        chains = torch.stack([first.flatten(), second.flatten(), torch.full((first.numel(),), end).double()], dim=1)
        total = chain_logprob(step, chains[..., None]).exp().sum() * float(nodes[1] - nodes[0]) ** 2
        exact = float(density[int((GRID - end).abs().argmin())])
        assert float(total) == pytest.approx(exact, rel=1e-4)


def test_without_noise_the_marginal_is_the_change_of_variables():
    steps, narrow = 2, math.log(0.003)
    start = torch.tensor([2.0], dtype=torch.float64)

    def end_of(x):
        for time in chain_times(steps).double():
            x = euler_step(x, curved(x, time), steps=steps)
        return x

    slope = torch.autograd.functional.jacobian(end_of, start).squeeze()
    exact = stats.norm.logpdf(2.0) - math.log(abs(float(slope)))
    # the marginal of narrow steps, by quadrature around the one path that leads there
    end, around = end_of(start), torch.linspace(-0.03, 0.03, 201, dtype=torch.float64)

    def thin(x, time):
        return euler_step(x, curved(x, time), steps=steps), torch.full_like(x, narrow)

    path = [start]
    for time in chain_times(steps).double()[:-1]:
        path.append(euler_step(path[-1], curved(path[-1], time), steps=steps))
    nodes = [point + around for point in path]
    places = torch.cartesian_prod(*nodes)
    chains = torch.cat([places, end.expand(len(places), 1)], dim=1).unsqueeze(-1)
    total = chain_logprob(thin, chains).exp().sum() * float(around[1] - around[0]) ** steps
    assert math.log(float(total)) == pytest.approx(exact, abs=1e-3)


def test_in_several_dimensions_the_density_is_that_of_the_noise_through_the_chain():
    """The chain is an invertible function of its noise: log p(chain) = log N(noise) − log|det d chain / d noise|."""
    steps, dims = 3, 2
    step = noisy_step(steps)
    noise = torch.randn(1, steps + 1, dims, generator=torch.Generator().manual_seed(0), dtype=torch.float64)

    def chain_of(flat):
        return sample_chain(step, flat.view(1, steps + 1, dims))[0].flatten()

    chain, means, log_stds = sample_chain(step, noise)
    jacobian = torch.autograd.functional.jacobian(chain_of, noise.flatten())
    exact = stats.norm.logpdf(noise.numpy()).sum() - float(torch.linalg.slogdet(jacobian)[1])
    assert float(chain_logprob(step, chain)) == pytest.approx(exact, abs=1e-9)
    for drawn, scored in zip((means, log_stds), score_chain(step, chain)):
        torch.testing.assert_close(drawn, scored)


@pytest.mark.parametrize("make", [noisy_step, sde])
def test_sampled_chains_have_the_density_they_are_scored_with(make):
    steps, count = 3, 200_000
    noise = torch.randn(count, steps + 1, 1, generator=torch.Generator().manual_seed(1), dtype=torch.float64)
    chain, means, log_stds = sample_chain(make(steps), noise)
    # minus the mean log-prob is the entropy, which is the mean of the steps' own
    logprobs = chain_logprob(make(steps), chain)
    entropy = gaussian_entropy(log_stds.flatten(1))
    spread = float((logprobs + entropy).std()) / math.sqrt(count)
    assert abs(float((logprobs + entropy).mean())) < 4 * spread
    torch.testing.assert_close(chain[:, 0], noise[:, 0])
    greedy = sample_chain(make(steps), torch.zeros(1, steps + 1, 1))[0]
    torch.testing.assert_close(greedy[:, 1:], sample_chain(make(steps), torch.zeros(1, steps + 1, 1))[1][:, 1:])


@pytest.mark.parametrize("level", [1e-3, 0.7])
def test_the_sde_keeps_the_marginals_of_the_flow(level):
    """Data N(0.5, 0.3²): the true velocity is linear, so that mean and variance can be carried on by hand."""
    steps, middle, spread = 400, 0.5, 0.3
    mean, variance = torch.zeros(1, dtype=torch.float64), torch.ones(1, dtype=torch.float64)

    def velocity(x, t):
        # E[noise − a | x] of the joint Gaussian
        total = t**2 + (1 - t) ** 2 * spread**2
        return -middle + (t - (1 - t) * spread**2) / total * (x - (1 - t) * middle)

    for time in chain_times(steps).double():
        here = torch.stack([mean, mean + 1])
        times = time.expand(2)
        means, log_std = sde_step(
            here, velocity(here, time), times, torch.tensor([level], dtype=torch.float64), steps=steps
        )
        slope = means[1] - means[0]
        mean, variance = means[0], slope**2 * variance + (2 * log_std[0]).exp()
    assert float(mean) == pytest.approx(middle, abs=0.01)
    assert float(variance.sqrt()) == pytest.approx(spread, rel=0.03)


def test_flow_matching_leads_back_to_the_actions():
    actions = torch.randn(4, 3, 2, generator=torch.Generator().manual_seed(0))
    noise = torch.randn(4, 3, 2, generator=torch.Generator().manual_seed(1))
    time = torch.tensor([0.1, 0.4, 0.7, 1.0])
    x, velocity = interpolate(actions, noise, time)
    torch.testing.assert_close(x - time[:, None, None] * velocity, actions)
    assert float(action_mse(velocity, noise - actions, torch.ones(4, 3).bool())[0]) == 0.0
    # a straight path needs one step
    assert torch.allclose(euler_step(noise, velocity, steps=1), actions, atol=1e-6)


def test_ppo_at_the_old_policy_has_the_reinforce_gradient():
    steps, weight = 3, torch.tensor([0.7, -0.4], dtype=torch.float64, requires_grad=True)

    def step(x, time):
        shifted = euler_step(x, weight[0] * torch.tanh(x) + time.unsqueeze(-1), steps=steps)
        return shifted, weight[1] + 0.2 * torch.sin(x)

    noise = torch.randn(6, steps + 1, 2, generator=torch.Generator().manual_seed(3), dtype=torch.float64)
    with torch.no_grad():
        chain = sample_chain(step, noise)[0]
        old = chain_logprob(step, chain)
    advantages = torch.randn(6, 1, generator=torch.Generator().manual_seed(4), dtype=torch.float64)
    logprobs = chain_logprob(step, chain)
    mask = torch.ones(6, 1, dtype=torch.bool)
    loss, ratios = ppo_clip(logprobs.unsqueeze(1), old.unsqueeze(1), advantages, mask, clip=0.2)
    (found,) = torch.autograd.grad(loss, weight, retain_graph=True)
    (reinforce,) = torch.autograd.grad(-(advantages[:, 0] * logprobs).mean(), weight)
    torch.testing.assert_close(found, reinforce)
    assert float(ratios["clip_fraction"]) == 0.0


def test_the_chains_kl_is_the_mean_log_ratio():
    """E over chains of the steps' KLs equals E[log p − log q], the divergence of the chains' distributions."""
    steps, count = 2, 100_000
    here, there = noisy_step(steps), noisy_step(steps, log_std=-0.5)
    noise = torch.randn(count, steps + 1, 1, generator=torch.Generator().manual_seed(5), dtype=torch.float64)
    chain, mean, log_std = (part.flatten(1) for part in sample_chain(here, noise))
    other = [part.flatten(1) for part in score_chain(there, chain.unsqueeze(-1))]
    exact = gaussian_kl(mean, log_std, *other)
    ratio = gaussian_logprob(chain, mean, log_std) - gaussian_logprob(chain, *other)
    gap = ratio - exact
    assert abs(float(gap.mean())) < 4 * float(gap.std()) / math.sqrt(count)
    assert float(exact.mean()) > 0.02
