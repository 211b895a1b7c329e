"""A frozen DINOv2 on raw frames, written out, with all that never changes folded together once.

For an encoder of a few layers, transformers' modules cost as much as their products. Folded are: the colours' mean and
deviation into the patches' projection, queries, keys and values into one product, a key's bias into nothing (it shifts
all scores of a query alike), a value's bias and the layer scales into what follows them.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional
from transformers import Dinov2Model

TOKENS_PER_PASS = 1040
"""Tokens that go through a CPU together: what a layer makes of more of them no longer fits a core's cache."""


@dataclass(frozen=True)
class _Layer:
    before: nn.LayerNorm
    project: Tensor
    """(d, 3d) queries, keys, values."""
    query_bias: Tensor
    """(d,)"""
    output: Tensor
    """(d, d)"""
    output_bias: Tensor
    between: nn.LayerNorm
    widen: Tensor
    """(d, m)"""
    widen_bias: Tensor
    activate: Callable[[Tensor], Tensor]
    narrow: Tensor
    """(m, d)"""
    narrow_bias: Tensor


def foldable(encoder: Any) -> bool:
    """Whether it is a DINOv2 of one device, without adapters, as `FoldedDinov2` takes it."""
    return (
        type(encoder) is Dinov2Model
        and not encoder.config.use_swiglu_ffn
        and all(type(weight.data) is Tensor and weight.dtype == torch.float32 for weight in encoder.parameters())
    )


class FoldedDinov2:
    """(b, s, s, 3) uint8 -> (b, p, d): the encoder's features of every patch, up to rounding."""

    @torch.no_grad()
    def __init__(self, encoder: Any, colours: Tensor, size: int) -> None:
        """`colours` (2, 3): mean and deviation of colours in 0..1 that it was trained with."""
        embeddings, mean, deviation = encoder.embeddings, *colours.double()
        weight, bias = (part.double() for part in embeddings.patch_embeddings.projection.parameters())
        self.patch, self.heads = weight.shape[-1], encoder.config.num_attention_heads
        self.side = size // self.patch
        per_colour = weight / deviation.view(3, 1, 1)
        # as frames lie in memory: down, across, colour
        self.project = (per_colour / 255).permute(2, 3, 1, 0).flatten(0, 2).to(colours)
        bias = bias - (per_colour * mean.view(3, 1, 1)).sum(dim=(1, 2, 3))
        blank = weight.new_zeros(1, self.side**2 + 1, len(weight))
        places = embeddings.interpolate_pos_encoding(blank, size, size)[0]
        self.first = embeddings.cls_token[0, 0] + places[0]
        self.places = (places[1:] + bias).to(colours)
        self.layers = [_fold(layer) for layer in encoder.encoder.layer]
        self.norm = encoder.layernorm

    @torch.no_grad()
    def __call__(self, frames: Tensor) -> Tensor:
        portion = max(1, TOKENS_PER_PASS // (self.side**2 + 1))
        if frames.device.type != "cpu" or len(frames) <= portion:
            return self._encode(frames)
        return torch.cat([self._encode(part) for part in torch.split(frames, portion)])

    def _encode(self, frames: Tensor) -> Tensor:
        rows, side, patch, width = len(frames), self.side, self.patch, len(self.first)
        cut = frames.reshape(rows, side, patch, side, patch, 3).transpose(2, 3).reshape(rows * side**2, -1)
        tokens = torch.empty(rows, side**2 + 1, width, device=frames.device)
        tokens[:, 0] = self.first
        torch.add((cut.float() @ self.project).view(rows, -1, width), self.places, out=tokens[:, 1:])
        flat = tokens.view(-1, width)
        for layer in self.layers:
            asked = _normed(flat, layer.before) @ layer.project
            asked[:, :width] += layer.query_bias
            query, key, value = asked.view(rows, -1, 3, self.heads, width // self.heads).permute(2, 0, 3, 1, 4)
            mixed = functional.scaled_dot_product_attention(query, key, value).transpose(1, 2).reshape(-1, width)
            flat.add_(layer.output_bias).addmm_(mixed, layer.output)
            wide = (_normed(flat, layer.between) @ layer.widen).add_(layer.widen_bias)
            flat.add_(layer.narrow_bias).addmm_(layer.activate(wide), layer.narrow)
        return _normed(tokens[:, 1:], self.norm)


def _fold(layer: Any) -> _Layer:
    attention, perceptron = layer.attention, layer.mlp
    query, key, value, output = (getattr(attention, f"{part}_proj") for part in "qkvo")
    unbiased = query.weight.new_zeros(len(query.weight))
    first, second = layer.layer_scale1.lambda1, layer.layer_scale2.lambda1
    through = output.bias if value.bias is None else output.bias + output.weight @ value.bias
    return _Layer(
        before=layer.norm1,
        project=torch.cat([part.weight for part in (query, key, value)]).T.contiguous(),
        query_bias=unbiased if query.bias is None else query.bias,
        output=(output.weight * first[:, None]).T.contiguous(),
        output_bias=through * first,
        between=layer.norm2,
        widen=perceptron.fc1.weight.T.contiguous(),
        widen_bias=perceptron.fc1.bias,
        activate=perceptron.activation_fn,
        narrow=(perceptron.fc2.weight * second[:, None]).T.contiguous(),
        narrow_bias=perceptron.fc2.bias * second,
    )


def _normed(states: Tensor, norm: nn.LayerNorm) -> Tensor:
    return functional.layer_norm(states, norm.normalized_shape, norm.weight, norm.bias, norm.eps)
