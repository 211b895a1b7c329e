import numpy as np
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
    drawn = actor.draw(states, noise)
    assert np.abs(drawn.actions).max() < 1
    np.testing.assert_allclose(actor.act(states, noise), drawn.actions, rtol=1e-5, atol=1e-6)
    still = actor.draw(states, torch.zeros(50, 2)).actions
    np.testing.assert_allclose(actor.act(states), still, rtol=1e-5, atol=1e-6)


def test_the_density_of_actions_integrates_to_one():
    actor = make(seed=3, state_size=1, action_size=1)
    state = torch.tensor([[0.7]])
    mean, log_std = actor(state)
    edges = torch.linspace(-0.9999, 0.9999, 20001)[:, None]
    noise = (edges.atanh() - mean.detach()) / log_std.detach().exp()
    logprobs = torch.from_numpy(actor.draw(state.expand(len(edges), 1), noise).logprobs)
    assert abs(torch.trapezoid(logprobs.exp(), edges[:, 0]).item() - 1) < 1e-3


@pytest.mark.parametrize("stretch", [1.0, 40.0])
def test_the_gradient_is_autograds_also_where_deviations_are_bounded(stretch):
    actor, states, noise = make(), stretch * normal(30, 3, seed=1), normal(30, 2, seed=2)
    for_actions, weight = normal(30, 2, seed=4), 0.3
    outputs = actor.network(states).detach().requires_grad_()
    mean, log_std = outputs[0].chunk(2, dim=-1)
    log_std = log_std.clamp(*LOG_STD)
    raw = mean + log_std.exp() * noise
    loss = (raw.tanh() * for_actions).sum() + weight * squashed_logprob(raw, noise, log_std).sum()
    loss.backward()
    drawn = actor.draw(states, noise)
    assert drawn.free.all() == (stretch == 1.0)
    assert torch.allclose(drawn.gradient(for_actions.numpy(), weight), outputs.grad, atol=1e-4, rtol=1e-4)


@pytest.mark.parametrize("stretch", [1.0, 40.0])
def test_log_densities_are_those_of_the_formula_also_where_tanh_rounds_to_one(stretch):
    actor, states, noise = make(), stretch * normal(30, 3, seed=1), normal(30, 2, seed=2)
    mean, log_std = actor(states)
    expected = squashed_logprob(mean + log_std.exp() * noise, noise, log_std).detach()
    np.testing.assert_allclose(actor.draw(states, noise).logprobs, expected, rtol=1e-4, atol=1e-4)


def test_rows_are_what_they_would_be_alone():
    actor, states, noise = make(), normal(10, 3, seed=1), normal(10, 2, seed=2)
    part, alone = actor.draw(states, noise).rows(4, 9), actor.draw(states[4:9], noise[4:9])
    np.testing.assert_allclose(part.actions, alone.actions, rtol=1e-5, atol=1e-6)
    np.testing.assert_allclose(part.logprobs, alone.logprobs, rtol=1e-5, atol=1e-5)
    assert all(torch.allclose(one, two, atol=1e-6) for one, two in zip(part.met, alone.met))
