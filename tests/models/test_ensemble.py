import copy

import torch

from lookact.models.ensemble import EnsembleMLP, run_ahead, run_back


def make(members=3, sizes=(4, 8, 6, 2), seed=0):
    return EnsembleMLP(members, sizes, torch.Generator().manual_seed(seed))


def drawn(*shape, seed=1):
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed)).requires_grad_()


def member_alone(layers, member, inputs):
    """One member, written out."""
    hidden = inputs
    for depth, (weight, bias) in enumerate(layers):
        hidden = hidden @ weight[member] + bias[member, 0]
        if depth < len(layers) - 1:
            hidden = hidden.clamp(min=0)
    return hidden


def test_members_are_the_networks_they_would_be_alone():
    network, inputs = make(), drawn(5, 4)
    outputs = network(inputs)
    for member in range(3):
        assert torch.allclose(outputs[member], member_alone(network.layers, member, inputs), atol=1e-6)


def test_a_lone_layer_is_a_product_and_a_shift_however_wide_and_has_their_gradient():
    for outputs in (1, 2, 40):
        network, inputs = make(sizes=(4, outputs)), drawn(3, 5, 4)
        ((weight, bias),) = network.layers
        found = network(inputs)
        torch.testing.assert_close(found, inputs @ weight + bias)
        found.sum().backward()
        torch.testing.assert_close(inputs.grad, weight.sum(dim=2).unsqueeze(1).expand(3, 5, 4))
        expected = torch.cat([inputs.detach().sum(dim=1).repeat_interleave(outputs), torch.full((3 * outputs,), 5.0)])
        torch.testing.assert_close(network.flat.grad, expected)


def test_gradients_are_those_of_autograd():
    for inputs in (drawn(5, 4), drawn(3, 5, 4)):
        network, weighting = make(), drawn(3, 5, 2, seed=2).detach()
        (network(inputs) * weighting).sum().backward()
        given = inputs.grad.clone()
        inputs.grad = None
        leaves = [tuple(part.clone().requires_grad_() for part in layer) for layer in network.layers]
        rows = inputs if inputs.dim() == 3 else inputs.expand(3, -1, -1)
        alone = torch.stack([member_alone(leaves, member, rows[member]) for member in range(3)])
        (alone * weighting).sum().backward()
        expected = torch.cat([part.grad.flatten() for layer in leaves for part in layer])
        assert torch.allclose(network.flat.grad, expected, atol=1e-5)
        assert torch.allclose(given, inputs.grad, atol=1e-5)


def test_gradients_by_hand_are_those_of_the_graph():
    network, inputs = make(), drawn(5, 4)
    upper = drawn(3, 5, 2, seed=2).detach()
    network(inputs).backward(upper)
    found, network.flat.grad = network.flat.grad, None
    outputs, met = run_ahead(inputs.detach(), network.layers)
    told = run_back(upper, met, network.layers, network.gradients(), for_inputs=True)
    assert torch.equal(outputs, network(inputs))
    assert torch.equal(network.flat.grad, found)
    assert torch.allclose(told.sum(dim=0), inputs.grad)
    assert run_back(upper, met, network.layers, None, for_inputs=False) is None


def test_each_member_may_have_rows_of_its_own():
    network, inputs = make(), drawn(3, 5, 4)
    assert torch.allclose(network(inputs)[1], network(inputs[1])[1], atol=1e-6)


def test_the_start_is_decided_by_the_generator_and_bounded_as_nn_linears():
    one, two, other = (make(sizes=(16, 3), seed=seed) for seed in (5, 5, 6))
    assert torch.equal(one.flat, two.flat)
    assert not torch.equal(one.flat, other.flat)
    ((weight, bias),) = one.layers
    assert not torch.equal(weight[0], weight[1])
    assert one.flat.abs().max() <= 0.25
    assert bias.shape == (3, 1, 3)


def test_layers_follow_weights_that_moved_elsewhere():
    networks = make()
    one = networks(torch.ones(2, networks.sizes[0]))
    networks.flat.data = networks.flat.data * 2.0
    other = copy.deepcopy(networks)
    with torch.no_grad():
        other.layers[-1][0].zero_()
        other.layers[-1][1].zero_()
    assert not torch.allclose(networks(torch.ones(2, networks.sizes[0])), one)
    assert other(torch.ones(2, networks.sizes[0])).abs().max() == 0
    assert networks.flat.abs().min() > 0
