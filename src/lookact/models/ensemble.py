"""Several small networks as one: a layer of all members is one batched product (`torch.baddbmm`)."""

from __future__ import annotations

import itertools
import math
from collections.abc import Sequence

import torch
from torch import Tensor, nn


class EnsembleMLP(nn.Module):
    """Perceptrons with a ReLU between layers: (b, inputs), or (members, b, inputs), -> (members, b, outputs).

    A layer is W x + b with a column for each row of the batch, weights (members, outputs, inputs) as those of
    `nn.Linear`: in this order a product with few outputs, such as a value, stays cheap, also on the way back.
    """

    def __init__(self, members: int, sizes: Sequence[int], generator: torch.Generator) -> None:
        """`sizes` are those of the input, every hidden layer, and the output; weights start as those of `nn.Linear`."""
        super().__init__()
        self.members, self.sizes = members, tuple(sizes)
        layers = list(itertools.pairwise(sizes))
        self.weights = nn.ParameterList(torch.empty(members, outputs, inputs) for inputs, outputs in layers)
        self.biases = nn.ParameterList(torch.empty(members, outputs, 1) for _, outputs in layers)
        with torch.no_grad():
            for weight, bias in zip(self.weights, self.biases):
                bound = 1.0 / math.sqrt(weight.shape[2])
                weight.uniform_(-bound, bound, generator=generator)
                bias.uniform_(-bound, bound, generator=generator)

    def forward(self, inputs: Tensor) -> Tensor:
        hidden = inputs.mT.expand(self.members, -1, -1)
        last = len(self.weights) - 1
        for depth, (weight, bias) in enumerate(zip(self.weights, self.biases)):
            hidden = torch.baddbmm(bias, weight, hidden)
            if depth < last:
                hidden = hidden.relu_()
        return hidden.mT
