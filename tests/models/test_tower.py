import copy

import numpy as np
import pytest
import torch

from lookact.models.tower import Tower


def tower(sizes=(3, 8, 5, 2), seed: int = 0) -> Tower:
    return Tower(sizes, torch.Generator().manual_seed(seed), gain=0.5)


def rows(count: int = 6) -> torch.Tensor:
    return torch.randn(count, 3, generator=torch.Generator().manual_seed(1))


def shaken(seed: int = 2) -> Tower:
    made = tower()
    with torch.no_grad():
        made.flat.add_(torch.randn(made.flat.shape, generator=torch.Generator().manual_seed(seed)))
    return made


def test_one_layer_is_a_product_and_a_shift():
    made = tower((2, 1))
    with torch.no_grad():
        made.flat.copy_(torch.tensor([2.0, -3.0, 0.5]))
    torch.testing.assert_close(made(torch.tensor([[1.0, 2.0], [0.0, 1.0]])), torch.tensor([[-3.5], [-2.5]]))


@pytest.mark.parametrize("sizes", [(3, 2), (3, 8, 2), (3, 8, 5, 2)])
def test_outputs_and_gradients_are_those_of_autograd(sizes):
    made = tower(sizes)
    with torch.no_grad():
        made.flat.add_(0.3)
    inputs, upper = rows().requires_grad_(), torch.randn(6, 2, generator=torch.Generator().manual_seed(3))
    written, walked = made(inputs), made._by_torch(inputs)
    torch.testing.assert_close(written, walked)
    found = torch.autograd.grad(written, (inputs, made.flat), upper)
    torch.testing.assert_close(found, torch.autograd.grad(walked, (inputs, made.flat), upper), atol=1e-5, rtol=1e-5)


def test_with_and_without_a_gradient_the_outputs_are_the_same_bits():
    made = shaken()
    with torch.no_grad():
        alone = made(rows())
    assert torch.equal(alone, made(rows()))
    with torch.inference_mode():
        assert torch.equal(alone, made(rows()))


def test_inputs_are_left_as_they_are():
    inputs = rows()
    kept = inputs.clone()
    shaken()(inputs).sum().backward()
    assert torch.equal(inputs, kept)


def test_weights_begin_orthogonal_and_the_last_are_scaled():
    first, _, last = tower().layers
    np.testing.assert_allclose(first[0] @ first[0].T, 2.0 * np.eye(3), atol=1e-5)
    np.testing.assert_allclose(last[0].T @ last[0], 0.25 * np.eye(2), atol=1e-5)
    assert not first[1].any()


def test_weights_that_were_loaded_or_moved_are_the_ones_used():
    made, other = shaken(2), shaken(4)
    before = made(rows())
    made.load_state_dict(other.state_dict())
    assert torch.equal(made(rows()), other(rows()))
    made.flat.data = shaken(2).flat.data
    assert torch.equal(made(rows()), before)
    torch.testing.assert_close(made.double()(rows().double()).float(), before)


def test_a_copy_has_weights_of_its_own():
    made = shaken()
    before = made(rows())
    twin = copy.deepcopy(made)
    with torch.no_grad():
        twin.flat.zero_()
    assert torch.equal(made(rows()), before)
    assert not twin(rows()).any()


def test_weights_changed_between_the_passes_are_told():
    made = shaken()
    outputs = made(rows())
    with torch.no_grad():
        made.flat.add_(1.0)
    with pytest.raises(RuntimeError, match="modified by an inplace operation"):
        outputs.sum().backward()
