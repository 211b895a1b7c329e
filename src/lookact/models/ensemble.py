"""Several small networks as one: a layer of all of them is one batched product, and all weights are one vector.

An optimiser's step, a copy or a slow average of the whole ensemble is then one operation, and its gradient is worked
out in one place: for networks this small, the bookkeeping of many tensors costs as much as the products.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor, nn
from torch.autograd.function import once_differentiable

Layer = tuple[Tensor, Tensor]
"""Weight (members, inputs, outputs) and bias (members, 1, outputs)."""


class EnsembleMLP(nn.Module):
    """Perceptrons with a ReLU between layers: (b, inputs), or (members, b, inputs), -> (members, b, outputs)."""

    def __init__(self, members: int, sizes: Sequence[int], generator: torch.Generator) -> None:
        """`sizes` are those of the input, every hidden layer, and the output; weights start as those of `nn.Linear`."""
        super().__init__()
        self.members, self.sizes = members, tuple(sizes)
        count = sum(members * (inputs + 1) * outputs for inputs, outputs in itertools.pairwise(sizes))
        self.flat = nn.Parameter(torch.empty(count))
        with torch.no_grad():
            for inputs, layer in zip(sizes, self.layers):
                for part in layer:
                    part.uniform_(-1.0 / math.sqrt(inputs), 1.0 / math.sqrt(inputs), generator=generator)

    @property
    def layers(self) -> list[Layer]:
        """Weights and biases that share the vector's memory."""
        return split_layers(self.flat.detach(), self.members, self.sizes)

    def forward(self, inputs: Tensor) -> Tensor:
        return run(inputs, self.flat, self.members, self.sizes)

    def frozen(self, inputs: Tensor) -> Tensor:
        """The same with a gradient for the inputs alone."""
        return run(inputs, self.flat.detach(), self.members, self.sizes)


def split_layers(flat: Tensor, members: int, sizes: Sequence[int]) -> list[Layer]:
    """Every layer's part of the vector of all weights."""
    layers, start = [], 0
    for inputs, outputs in itertools.pairwise(sizes):
        middle, end = start + members * inputs * outputs, start + members * (inputs + 1) * outputs
        weight, bias = flat[start:middle], flat[middle:end]
        layers.append((weight.view(members, inputs, outputs), bias.view(members, 1, outputs)))
        start = end
    return layers


def run(inputs: Tensor, flat: Tensor, members: int, sizes: tuple[int, ...]) -> Tensor:
    outputs: Tensor = _Perceptrons.apply(inputs, flat, members, sizes)  # type: ignore[no-untyped-call]
    return outputs


class _Perceptrons(torch.autograd.Function):
    """All layers as one node of the graph."""

    @staticmethod
    def forward(ctx: Any, inputs: Tensor, flat: Tensor, members: int, sizes: tuple[int, ...]) -> Tensor:
        layers = split_layers(flat, members, sizes)
        hidden = inputs.expand(members, -1, -1) if inputs.dim() == 2 else inputs
        met = []
        for weight, bias in layers[:-1]:
            met.append(hidden)
            hidden = torch.baddbmm(bias, hidden, weight).relu_()
        ctx.save_for_backward(flat, *met, hidden)
        ctx.members, ctx.sizes, ctx.shared = members, sizes, inputs.dim() == 2
        return torch.baddbmm(layers[-1][1], hidden, layers[-1][0])

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, upper: Tensor) -> tuple[Tensor | None, ...]:
        flat, *met = ctx.saved_tensors
        for_inputs, for_weights, *_ = ctx.needs_input_grad
        found = torch.empty_like(flat) if for_weights else flat
        layers, gradients = (split_layers(vector, ctx.members, ctx.sizes) for vector in (flat, found))
        for depth in reversed(range(len(layers))):
            if for_weights:
                torch.bmm(met[depth].mT, upper, out=gradients[depth][0])
                torch.sum(upper, dim=1, keepdim=True, out=gradients[depth][1])
            if depth or for_inputs:
                upper = torch.bmm(upper, layers[depth][0].mT)
            if depth:
                upper = torch.ops.aten.threshold_backward(upper, met[depth], 0)
        told = (upper.sum(dim=0) if ctx.shared else upper) if for_inputs else None
        return told, found if for_weights else None, None, None
