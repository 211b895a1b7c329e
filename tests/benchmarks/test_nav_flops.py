from collections import Counter

import pytest
import torch

from benchmarks.nav_flops import count_flops, find_products, multiplies, updates


def test_products_of_a_layer_forward_and_backward():
    layer, states = torch.nn.Linear(3, 5), torch.randn(7, 3, requires_grad=True)

    def work():
        layer(states).sum().backward()
        return {}

    products = find_products(work)
    # forward, and the gradients of the weight and of the states
    assert sum(products.values()) == 3
    assert products[(7, 3), (3, 5)] == 1
    assert count_flops(products) == 3 * 2 * 7 * 3 * 5


def test_flops_of_a_batch_of_products():
    assert count_flops(Counter({((4, 2, 3), (4, 3, 5)): 2})) == 2 * 4 * 2 * (2 * 3 * 5)


@pytest.mark.slow
def test_both_sides_do_the_same_flops(folder, load):
    update, alone = updates(folder, load)(), multiplies(folder, load)()
    assert update["flops"] == alone["flops"] > 1e7
