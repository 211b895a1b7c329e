"""How much of what a core can multiply the update reaches.

The matrix products of one update, forward and backward, are read off the profiler with their sizes; then the same
products are done alone. The share is time against time for equal FLOPs. Attention's inner products run in a fused
kernel and are left out of the count: the share is a lower bound.
"""

from __future__ import annotations

import math
from collections import Counter
from pathlib import Path

import torch
from torch.profiler import ProfilerActivity, profile

from benchmarks.nav_update import by_episode
from benchmarks.timing import Facts, Work
from benchmarks.walks import Load

Product = tuple[tuple[int, ...], tuple[int, ...]]
"""The sizes of both factors: (m, k) and (k, n), or with a batch in front."""
OPERANDS = {"aten::mm": (0, 1), "aten::bmm": (0, 1), "aten::addmm": (1, 2), "aten::baddbmm": (1, 2)}
"""Where the factors stand among an operator's inputs."""


def updates(folder: Path, load: Load) -> Work:
    """The update, with the FLOPs of its matrix products."""
    work = by_episode(folder, load)
    flops = count_flops(find_products(work))

    def counted() -> Facts:
        return dict(work()) | {"flops": flops}

    return counted


def multiplies(folder: Path, load: Load) -> Work:
    """The same matrix products and nothing else."""
    products = find_products(by_episode(folder, load))
    factors = [(torch.randn(first), torch.randn(second), times) for (first, second), times in products.items()]
    flops = count_flops(products)

    def work() -> Facts:
        for first, second, times in factors:
            for _ in range(times):
                torch.matmul(first, second)
        return {"flops": flops}

    return work


def find_products(work: Work) -> Counter[Product]:
    """How often the work multiplies matrices of which sizes."""
    with profile(activities=[ProfilerActivity.CPU], record_shapes=True) as seen:
        work()
    products: Counter[Product] = Counter()
    for event in seen.key_averages(group_by_input_shape=True):
        if event.key in OPERANDS:
            first, second = (tuple(event.input_shapes[place]) for place in OPERANDS[event.key])
            products[first, second] += event.count
    return products


def count_flops(products: Counter[Product]) -> int:
    """A multiplication and an addition for every row, column and inner index."""
    return sum(2 * math.prod(first) * second[-1] * times for (first, second), times in products.items())
