"""Several small networks as one: a layer of all of them is one batched product, and all weights are one vector.

An optimiser's step, a copy or a slow average of the whole ensemble is then one operation, and its gradient is worked
out in one place: for networks this small, the bookkeeping of many tensors costs as much as the products.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Sequence
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn
from torch.autograd.function import once_differentiable

Layer = tuple[Tensor, Tensor]
"""Weight (members, inputs, outputs) and bias (members, 1, outputs)."""
NARROW = 16
"""Columns up to which a product is numpy's."""


class EnsembleMLP(nn.Module):
    """Perceptrons with a ReLU between layers: (b, inputs), or (members, b, inputs), -> (members, b, outputs)."""

    def __init__(self, members: int, sizes: Sequence[int], generator: torch.Generator) -> None:
        """`sizes` are those of the input, every hidden layer, and the output; weights start as those of `nn.Linear`."""
        super().__init__()
        self.members, self.sizes = members, tuple(sizes)
        count = sum(members * (inputs + 1) * outputs for inputs, outputs in itertools.pairwise(sizes))
        self.flat = nn.Parameter(torch.empty(count))
        self._address, self._layers = 0, list[Layer]()
        self._found_at, self._found = 0, list[Layer]()
        with torch.no_grad():
            for inputs, layer in zip(sizes, self.layers):
                for part in layer:
                    part.uniform_(-1.0 / math.sqrt(inputs), 1.0 / math.sqrt(inputs), generator=generator)

    @property
    def layers(self) -> list[Layer]:
        """Weights and biases that share the vector's memory, found anew only when that has moved."""
        if self._address != self.flat.data_ptr():
            self._address = self.flat.data_ptr()
            self._layers = split_layers(self.flat.detach(), self.members, self.sizes)
        return self._layers

    def forward(self, inputs: Tensor) -> Tensor:
        outputs: Tensor = _Perceptrons.apply(inputs, self.flat, self.layers)  # type: ignore[no-untyped-call]
        return outputs

    def gradients(self) -> list[Layer]:
        """Where `run_back` writes so that an optimiser finds the weights' gradient; laid out like the layers."""
        if self.flat.grad is None:
            self.flat.grad = torch.empty_like(self.flat)
        if self._found_at != self.flat.grad.data_ptr():
            self._found_at = self.flat.grad.data_ptr()
            self._found = split_layers(self.flat.grad, self.members, self.sizes)
        return self._found


def split_layers(flat: Tensor, members: int, sizes: Sequence[int]) -> list[Layer]:
    """Every layer's part of the vector of all weights."""
    layers, start = [], 0
    for inputs, outputs in itertools.pairwise(sizes):
        middle, end = start + members * inputs * outputs, start + members * (inputs + 1) * outputs
        weight, bias = flat[start:middle], flat[middle:end]
        layers.append((weight.view(members, inputs, outputs), bias.view(members, 1, outputs)))
        start = end
    return layers


class _Perceptrons(torch.autograd.Function):
    """All layers, which are parts of `flat`, as one node of the graph."""

    @staticmethod
    def forward(ctx: Any, inputs: Tensor, flat: Tensor, layers: list[Layer]) -> Tensor:
        outputs, met = run_ahead(inputs, layers)
        ctx.save_for_backward(flat, *met)
        ctx.layers, ctx.shared = layers, inputs.dim() == 2
        return outputs

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, upper: Tensor) -> tuple[Tensor | None, ...]:
        flat, *met = ctx.saved_tensors
        for_inputs, for_weights, _ = ctx.needs_input_grad
        found = torch.empty_like(flat) if for_weights else None
        gradients = None if found is None else parts_like(ctx.layers, found)
        told = run_back(upper, met, ctx.layers, gradients, for_inputs=for_inputs)
        return told.sum(dim=0) if told is not None and ctx.shared else told, found, None


def run_ahead(inputs: Tensor, layers: list[Layer]) -> tuple[Tensor, list[Tensor]]:
    """Outputs (members, b, outputs), and what every layer met (members, b, its inputs)."""
    hidden = inputs.expand(len(layers[0][0]), -1, -1) if inputs.dim() == 2 else inputs
    met = [hidden]
    # not baddbmm: that copies the bias to every row before it multiplies, at a fifth of the product's price
    for weight, bias in layers[:-1]:
        met.append(torch.bmm(met[-1], weight).add_(bias).relu_())
    return _product(met[-1], layers[-1][0]).add_(layers[-1][1]), met


def run_back(
    upper: Tensor, met: Sequence[Tensor], layers: list[Layer], gradients: list[Layer] | None, *, for_inputs: bool
) -> Tensor | None:
    """From the outputs' gradient to the inputs' (members, b, inputs), if asked for; those of weights are written."""
    for depth in reversed(range(len(layers))):
        if gradients is not None:
            _product(met[depth].mT, upper, out=gradients[depth][0])
            torch.sum(upper, dim=1, keepdim=True, out=gradients[depth][1])
        if depth or for_inputs:
            weight = layers[depth][0].mT
            # of one output it is an outer product
            upper = torch.bmm(upper, weight) if upper.shape[-1] > 1 else upper * weight
        if depth:
            # in place: it is the product's own memory
            torch.ops.aten.threshold_backward.grad_input(upper, met[depth], 0, grad_input=upper)
    return upper if for_inputs else None


def _product(left: Tensor, right: Tensor, out: Tensor | None = None) -> Tensor:
    """(members, n, k) times (members, k, m); of a few columns numpy makes it several times as fast as torch does."""
    if right.shape[-1] > NARROW or not right.is_cpu:
        return torch.bmm(left, right) if out is None else torch.bmm(left, right, out=out)
    factors = left.detach().numpy(), right.detach().numpy()
    if out is None:
        return torch.from_numpy(np.matmul(*factors))
    np.matmul(*factors, out=out.numpy())
    return out


def parts_like(layers: list[Layer], vector: Tensor) -> list[Layer]:
    """The parts of another vector that lie where these layers lie in theirs."""
    sizes = [layers[0][0].shape[1], *(weight.shape[2] for weight, _ in layers)]
    return split_layers(vector, len(layers[0][0]), sizes)
