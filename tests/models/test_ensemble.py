import torch

from lookact.models.ensemble import EnsembleMLP


def make(members=3, sizes=(4, 8, 6, 2), seed=0):
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
    network, inputs = make(), drawn(5, 4)
    outputs = network(inputs)
    assert outputs.shape == (3, 5, 2)
    for member in range(3):
        assert torch.allclose(outputs[member], member_alone(network, member, inputs), atol=1e-6)


def test_a_lone_layer_is_a_product_and_a_shift_however_wide_and_has_their_gradient():
    for outputs in (1, 2, 40):
        network, inputs = make(sizes=(4, outputs)), drawn(3, 5, 4)
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
        network, weighting = make(), drawn(3, 5, 2, seed=2).detach()
        (network(inputs) * weighting).sum().backward()
        given, inputs.grad = inputs.grad, None
        rows = inputs if inputs.dim() == 3 else inputs.expand(3, -1, -1)
        alone = torch.stack([member_alone(network, member, rows[member]) for member in range(3)])
        (alone * weighting).sum().backward()
        assert torch.allclose(given, inputs.grad, atol=1e-5)


def test_each_member_may_have_rows_of_its_own():
    network, inputs = make(), drawn(3, 5, 4)
    assert torch.allclose(network(inputs)[1], network(inputs[1])[1], atol=1e-6)


def test_the_start_is_decided_by_the_generator_and_bounded_as_nn_linears():
    one, two, other = (make(sizes=(16, 3), seed=seed) for seed in (5, 5, 6))
    assert torch.equal(one.weights[0], two.weights[0])
    assert not torch.equal(one.weights[0], other.weights[0])
    (weight,), (bias,) = one.weights, one.biases
    assert not torch.equal(weight[0], weight[1])
    assert max(weight.abs().max(), bias.abs().max()) <= 0.25
    assert weight.shape == (3, 3, 16)
    assert bias.shape == (3, 3, 1)
