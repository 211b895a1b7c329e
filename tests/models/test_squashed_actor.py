import pytest
import torch

from lookact.models.squashed_actor import LOG_STD, SquashedActor
from lookact.ops.gaussian import squashed_logprob


def make(seed=0, state_size=3, action_size=2):
    return SquashedActor(state_size, action_size, (16, 16), torch.Generator().manual_seed(seed))


def normal(*shape, seed):
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed))


def test_actions_are_bounded_and_follow_the_noise():
    actor, states, noise = make(), normal(50, 3, seed=1), normal(50, 2, seed=2)
    actions, _ = actor.sample(states, noise)
    assert actions.abs().max() < 1
    assert torch.equal(actor.act(states, noise), actions)
    assert torch.equal(actor.act(states), actor.sample(states, torch.zeros(50, 2))[0])


def test_the_density_of_actions_integrates_to_one():
    actor = make(seed=3, state_size=1, action_size=1)
    state = torch.tensor([[0.7]])
    mean, log_std = actor(state)
    edges = torch.linspace(-0.9999, 0.9999, 20001)[:, None]
    noise = (edges.atanh() - mean.detach()) / log_std.detach().exp()
    logprobs = actor.sample(state.expand(len(edges), 1), noise)[1].detach()
    assert abs(torch.trapezoid(logprobs.exp(), edges[:, 0]).item() - 1) < 1e-3


@pytest.mark.parametrize("stretch", [1.0, 40.0])
def test_log_densities_are_those_of_the_formula_also_where_tanh_rounds_to_one(stretch):
    actor, states, noise = make(), stretch * normal(30, 3, seed=1), normal(30, 2, seed=2)
    mean, log_std = actor(states)
    expected = squashed_logprob(mean + log_std.exp() * noise, noise, log_std)
    logprobs = actor.sample(states, noise)[1]
    assert logprobs.isfinite().all()
    assert torch.allclose(logprobs, expected, rtol=1e-4, atol=1e-4)


def test_deviations_at_their_bounds_get_no_gradient_and_means_still_do():
    actor, states = make(), 400.0 * normal(30, 3, seed=1)
    log_std = actor(states)[1]
    bound = (log_std == LOG_STD[0]) | (log_std == LOG_STD[1])
    assert bound.any()
    seen = []
    actor.network.register_forward_hook(lambda module, inputs, outputs: seen.append(outputs))
    actor.sample(states, normal(30, 2, seed=2))[1].sum().backward(inputs=seen)
    means, deviations = seen[0].grad[0].chunk(2, dim=-1)
    assert (deviations[bound] == 0).all()
    assert (means[bound] != 0).any()


def test_the_reparameterised_gradient_reaches_the_network_through_actions_and_densities():
    actor, states, noise = make(), normal(8, 3, seed=1), normal(8, 2, seed=2)
    for part in (0, 1):
        actor.zero_grad()
        actor.sample(states, noise)[part].sum().backward()
        assert all(parameter.grad.abs().sum() > 0 for parameter in actor.parameters())


def test_rows_are_what_they_would_be_alone():
    actor, states, noise = make(), normal(10, 3, seed=1), normal(10, 2, seed=2)
    part, alone = actor.sample(states, noise), actor.sample(states[4:9], noise[4:9])
    assert all(torch.allclose(one[4:9], two, atol=1e-5) for one, two in zip(part, alone))
