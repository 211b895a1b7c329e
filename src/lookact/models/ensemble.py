"""Several small networks as one: their weights lie side by side, and a layer of all of them is one batched product."""

from __future__ import annotations

import itertools
import math
from collections.abc import Sequence

import torch
from torch import Tensor, nn


class EnsembleLinear(nn.Module):
    """A linear layer of every member, (members, b, inputs) -> (members, b, outputs), started as `nn.Linear` is."""

    def __init__(self, members: int, inputs: int, outputs: int, generator: torch.Generator) -> None:
        super().__init__()
        bound = 1.0 / math.sqrt(inputs)
        weight = torch.empty(members, inputs, outputs).uniform_(-bound, bound, generator=generator)
        bias = torch.empty(members, 1, outputs).uniform_(-bound, bound, generator=generator)
        self.weight, self.bias = nn.Parameter(weight), nn.Parameter(bias)

    def forward(self, inputs: Tensor) -> Tensor:
        return torch.baddbmm(self.bias, inputs, self.weight)


class EnsembleMLP(nn.Module):
    """Perceptrons with a ReLU between layers: (b, inputs), or (members, b, inputs), -> (members, b, outputs)."""

    def __init__(self, members: int, sizes: Sequence[int], generator: torch.Generator) -> None:
        """`sizes` are those of the input, every hidden layer, and the output."""
        super().__init__()
        self.members = members
        pairs = itertools.pairwise(sizes)
        self.layers = nn.ModuleList([EnsembleLinear(members, *pair, generator) for pair in pairs])

    def forward(self, inputs: Tensor) -> Tensor:
        hidden = inputs.expand(self.members, -1, -1) if inputs.dim() == 2 else inputs
        *inner, last = self.layers
        for layer in inner:
            hidden = layer(hidden).relu_()
        outputs: Tensor = last(hidden)
        return outputs
