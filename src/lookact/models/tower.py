"""A small perceptron whose weights are one vector and whose gradient is written out.

Batches of a few dozen rows through layers of a few dozen units are products of microseconds: torch spends longer on
each call than on its numbers, and longer still on walking back. numpy's calls cost a fraction, on the same memory.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from itertools import pairwise
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn
from torch.autograd.function import once_differentiable

Floats = NDArray[np.float32]
Layers = list[tuple[Floats, Floats]]
"""Weight (inputs, outputs) and bias (outputs,) of each."""


class Tower(nn.Module):
    """(b, inputs) -> (b, outputs), tanh between layers; orthogonal weights, of which `gain` scales the last."""

    def __init__(self, sizes: Sequence[int], generator: torch.Generator, *, gain: float) -> None:
        """`sizes` are those of the input, every hidden layer, and the output."""
        super().__init__()
        self.sizes = tuple(sizes)
        self.flat = nn.Parameter(torch.zeros(sum((inputs + 1) * outputs for inputs, outputs in pairwise(sizes))))
        self._address, self._layers = 0, Layers()
        with torch.no_grad():
            for index, (weight, _) in enumerate(split_layers(self.flat, 1, self.sizes)):
                drawn = torch.empty(weight.shape[:0:-1])
                last = index == len(sizes) - 2
                nn.init.orthogonal_(drawn, gain if last else math.sqrt(2.0), generator=generator)
                weight[0] = drawn.T

    @property
    def layers(self) -> Layers:
        """Weights and biases that share the vector's memory, found anew only when that has moved."""
        if self._address != self.flat.data_ptr():
            self._address, self._layers = self.flat.data_ptr(), _parts(self.flat.detach().numpy(), self.sizes)
        return self._layers

    def forward(self, inputs: Tensor) -> Tensor:
        if self.flat.device.type != "cpu" or self.flat.dtype != torch.float32:
            return self._by_torch(inputs)
        if not torch.is_grad_enabled():
            return torch.from_numpy(_run_ahead(inputs.numpy(), self.layers)[-1])
        outputs: Tensor = _Written.apply(inputs, self.flat, self.layers)  # type: ignore[no-untyped-call]
        return outputs

    def _by_torch(self, inputs: Tensor) -> Tensor:
        """The same on any device."""
        *hidden, (weight, bias) = split_layers(self.flat, 1, self.sizes)
        for narrow, shift in hidden:
            inputs = torch.addmm(shift[0], inputs, narrow[0]).tanh()
        return torch.addmm(bias[0], inputs, weight[0])


class _Written(torch.autograd.Function):
    """All layers as one node of the graph."""

    @staticmethod
    def forward(ctx: Any, inputs: Tensor, flat: Tensor, layers: Layers) -> Tensor:
        ctx.save_for_backward(flat)
        *ctx.met, outputs = _run_ahead(inputs.detach().numpy(), layers)
        ctx.layers = layers
        return torch.from_numpy(outputs)

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, upper: Tensor) -> tuple[Tensor | None, Tensor, None]:
        # unpacked to be told if the weights were changed since
        (flat,) = ctx.saved_tensors
        found = np.empty(flat.shape, np.float32)
        told = _run_back(upper.numpy(), ctx.met, ctx.layers, found, for_inputs=ctx.needs_input_grad[0])
        return None if told is None else torch.from_numpy(told), torch.from_numpy(found), None


def _run_ahead(inputs: Floats, layers: Layers) -> list[Floats]:
    """What every layer met (b, its inputs), and the outputs."""
    met = [inputs]
    for weight, bias in layers:
        if len(met) > 1:
            np.tanh(met[-1], out=met[-1])
        met.append(met[-1] @ weight)
        met[-1] += bias
    return met


def _run_back(
    upper: Floats, met: Sequence[Floats], layers: Layers, found: Floats, *, for_inputs: bool
) -> Floats | None:
    """From the outputs' gradient to the inputs', if asked for; that of all weights is written to `found`."""
    sizes = [len(layers[0][0]), *(len(bias) for _, bias in layers)]
    for depth, (weight, bias) in reversed(list(enumerate(_parts(found, sizes)))):
        np.matmul(met[depth].T, upper, out=weight)
        np.add.reduce(upper, axis=0, out=bias)
        if depth:
            # of tanh: 1 − tanh²
            slope = met[depth] * met[depth]
            upper = (upper @ layers[depth][0].T) * np.subtract(1.0, slope, out=slope)
    return upper @ layers[0][0].T if for_inputs else None


def split_layers(flat: Tensor, members: int, sizes: Sequence[int]) -> list[tuple[Tensor, Tensor]]:
    """Every layer's part of the vector of all weights."""
    layers, start = [], 0
    for inputs, outputs in pairwise(sizes):
        middle, end = start + members * inputs * outputs, start + members * (inputs + 1) * outputs
        weight, bias = flat[start:middle], flat[middle:end]
        layers.append((weight.view(members, inputs, outputs), bias.view(members, 1, outputs)))
        start = end
    return layers


def _parts(flat: Floats, sizes: Sequence[int]) -> Layers:
    """Every layer's part of the vector of all weights, where `split_layers` has it."""
    layers, start = Layers(), 0
    for inputs, outputs in pairwise(sizes):
        middle = start + inputs * outputs
        layers.append((flat[start:middle].reshape(inputs, outputs), flat[middle : middle + outputs]))
        start = middle + outputs
    return layers
