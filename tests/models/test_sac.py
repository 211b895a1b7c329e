import math

import pytest
import torch
from torch.nn.utils import parameters_to_vector

from lookact.models.sac import FINEST, FURTHEST, LOG_STD, SAC, EnsembleMLP, SquashedActor, Standardise
from lookact.ops.sac_loss import squashed_logprob


def make(seed=0, **changes):
    return SAC(3, 2, hidden=(16, 16), generator=torch.Generator().manual_seed(seed), **changes)


def weights_of(module):
    return parameters_to_vector(module.parameters())


def test_targets_begin_as_the_critics_and_have_no_gradient():
    sac = make()
    for critic, target in zip(sac.critics.parameters(), sac.target_critics.parameters()):
        assert torch.equal(critic, target)
        assert critic.requires_grad
        assert not target.requires_grad
    assert math.isclose(sac.log_alpha.exp().item(), 0.1, rel_tol=1e-6)


def test_a_reset_forgets_the_critics_and_leaves_the_actor():
    sac, before = make(), make()
    sac.reset_critics(torch.Generator().manual_seed(9))
    assert torch.equal(weights_of(sac.actor), weights_of(before.actor))
    assert not torch.equal(weights_of(sac.critics), weights_of(before.critics))
    assert torch.equal(weights_of(sac.critics), weights_of(sac.target_critics))


def test_an_agent_acts_on_raw_states_as_its_actor_does_on_standardised_ones():
    sac = SAC(3, 2, hidden=(16,), generator=torch.Generator().manual_seed(0))
    states = 30.0 + 10.0 * torch.randn(40, 3, generator=torch.Generator().manual_seed(1))
    assert torch.equal(sac.act(states), sac.actor.act(states))
    sac.standardise.fit(states)
    assert torch.equal(sac.act(states), sac.actor.act(sac.standardise(states)))
    assert not torch.allclose(sac.act(states), sac.actor.act(states))


def test_a_critic_reads_states_and_actions_side_by_side():
    sac = make()
    states, actions = torch.randn(5, 3), torch.randn(5, 2)
    q = sac.critics(states, actions)
    assert q.shape == (2, 5)
    assert torch.equal(q, sac.critics.network(torch.cat([states, actions], dim=1))[..., 0])


def make_ensemble(members=3, sizes=(4, 8, 6, 2), seed=0):
    return EnsembleMLP(members, sizes, torch.Generator().manual_seed(seed))


def drawn(*shape, seed=1):
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed)).requires_grad_()


def member_alone(network, member, inputs):
    """One member as torch's own layers."""
    layers = []
    for weight, bias in zip(network.weights, network.biases):
        layer = torch.nn.Linear(weight.shape[2], weight.shape[1])
        layer.load_state_dict({"weight": weight[member], "bias": bias[member, :, 0]})
        layers += [layer, torch.nn.ReLU()]
    return torch.nn.Sequential(*layers[:-1])(inputs)


def test_members_are_the_networks_they_would_be_alone():
    network, inputs = make_ensemble(), drawn(5, 4)
    outputs = network(inputs)
    assert outputs.shape == (3, 5, 2)
    for member in range(3):
        assert torch.allclose(outputs[member], member_alone(network, member, inputs), atol=1e-6)


def test_a_lone_layer_is_a_product_and_a_shift_however_wide_and_has_their_gradient():
    for outputs in (1, 2, 40):
        network, inputs = make_ensemble(sizes=(4, outputs)), drawn(3, 5, 4)
        (weight,), (bias,) = network.weights, network.biases
        found = network(inputs)
        torch.testing.assert_close(found, inputs @ weight.mT + bias.mT)
        found.sum().backward()
        torch.testing.assert_close(inputs.grad, weight.sum(dim=1).unsqueeze(1).expand(3, 5, 4))
        expected = inputs.detach().sum(dim=1, keepdim=True).expand(3, outputs, 4)
        torch.testing.assert_close(weight.grad, expected)
        assert torch.equal(bias.grad, torch.full((3, outputs, 1), 5.0))


def test_members_get_the_gradients_they_would_get_alone():
    for inputs in (drawn(5, 4), drawn(3, 5, 4)):
        network, weighting = make_ensemble(), drawn(3, 5, 2, seed=2).detach()
        (network(inputs) * weighting).sum().backward()
        given, inputs.grad = inputs.grad, None
        rows = inputs if inputs.dim() == 3 else inputs.expand(3, -1, -1)
        alone = torch.stack([member_alone(network, member, rows[member]) for member in range(3)])
        (alone * weighting).sum().backward()
        assert torch.allclose(given, inputs.grad, atol=1e-5)


def test_each_member_may_have_rows_of_its_own():
    network, inputs = make_ensemble(), drawn(3, 5, 4)
    assert torch.allclose(network(inputs)[1], network(inputs[1])[1], atol=1e-6)


def test_the_start_is_decided_by_the_generator_and_bounded_as_nn_linears():
    one, two, other = (make_ensemble(sizes=(16, 3), seed=seed) for seed in (5, 5, 6))
    assert torch.equal(one.weights[0], two.weights[0])
    assert not torch.equal(one.weights[0], other.weights[0])
    (weight,), (bias,) = one.weights, one.biases
    assert not torch.equal(weight[0], weight[1])
    assert max(weight.abs().max(), bias.abs().max()) <= 0.25
    assert weight.shape == (3, 3, 16)
    assert bias.shape == (3, 3, 1)


def make_actor(seed=0, state_size=3, action_size=2):
    return SquashedActor(state_size, action_size, (16, 16), torch.Generator().manual_seed(seed))


def normal(*shape, seed):
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed))


def test_actions_are_bounded_and_follow_the_noise():
    actor, states, noise = make_actor(), normal(50, 3, seed=1), normal(50, 2, seed=2)
    actions, _ = actor.sample(states, noise)
    assert actions.abs().max() < 1
    assert torch.equal(actor.act(states, noise), actions)
    assert torch.equal(actor.act(states), actor.sample(states, torch.zeros(50, 2))[0])


def test_the_density_of_actions_integrates_to_one():
    actor = make_actor(seed=3, state_size=1, action_size=1)
    state = torch.tensor([[0.7]])
    mean, log_std = actor(state)
    edges = torch.linspace(-0.9999, 0.9999, 20001)[:, None]
    noise = (edges.atanh() - mean.detach()) / log_std.detach().exp()
    logprobs = actor.sample(state.expand(len(edges), 1), noise)[1].detach()
    assert abs(torch.trapezoid(logprobs.exp(), edges[:, 0]).item() - 1) < 1e-3


@pytest.mark.parametrize("stretch", [1.0, 40.0])
def test_log_densities_are_those_of_the_formula_also_where_tanh_rounds_to_one(stretch):
    actor, states, noise = make_actor(), stretch * normal(30, 3, seed=1), normal(30, 2, seed=2)
    mean, log_std = actor(states)
    expected = squashed_logprob(mean + log_std.exp() * noise, noise, log_std)
    logprobs = actor.sample(states, noise)[1]
    assert logprobs.isfinite().all()
    assert torch.allclose(logprobs, expected, rtol=1e-4, atol=1e-4)


def test_deviations_at_their_bounds_get_no_gradient_and_means_still_do():
    actor, states = make_actor(), 400.0 * normal(30, 3, seed=1)
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
    actor, states, noise = make_actor(), normal(8, 3, seed=1), normal(8, 2, seed=2)
    for part in (0, 1):
        actor.zero_grad()
        actor.sample(states, noise)[part].sum().backward()
        assert all(parameter.grad.abs().sum() > 0 for parameter in actor.parameters())


def test_rows_are_what_they_would_be_alone():
    actor, states, noise = make_actor(), normal(10, 3, seed=1), normal(10, 2, seed=2)
    part, alone = actor.sample(states, noise), actor.sample(states[4:9], noise[4:9])
    assert all(torch.allclose(one[4:9], two, atol=1e-5) for one, two in zip(part, alone))


def test_states_are_left_as_they_are_until_some_were_looked_over():
    states = torch.tensor([[1e6, -3.0]])
    assert torch.equal(Standardise(2)(states), states)


def test_states_that_were_looked_over_have_mean_zero_and_spread_one():
    standardise = Standardise(2)
    states = torch.tensor([[1.0, 40.0], [3.0, 80.0]])
    standardise.fit(states)
    assert torch.allclose(standardise(states), torch.tensor([[-1.0, -1.0], [1.0, 1.0]]))


def test_a_number_that_never_changed_is_centred_only_and_one_that_hardly_did_is_not_blown_up():
    standardise = Standardise(2)
    standardise.fit(torch.tensor([[5.0, 0.001], [5.0, -0.001]]))
    told = standardise(torch.tensor([[5.5, FINEST]]))
    assert torch.allclose(told, torch.tensor([[0.5, 1.0]]))


def test_what_is_far_out_is_clipped():
    standardise = Standardise(1)
    standardise.fit(torch.tensor([[-1.0], [1.0]]))
    assert standardise(torch.tensor([[1e9], [-1e9]])).flatten().tolist() == [FURTHEST, -FURTHEST]


def test_the_scale_is_kept_with_the_weights():
    one, other = Standardise(1), Standardise(1)
    one.fit(torch.tensor([[2.0], [6.0]]))
    other.load_state_dict(one.state_dict())
    assert other(torch.tensor([[6.0]])).item() == 1.0
