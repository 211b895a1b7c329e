"""The two elementwise steps that cost most on a CPU, with backward passes of their own.

Autograd keeps and walks over nine tensors for a root-mean-square norm; the closed form needs three. Both are equal
to the stock ones up to rounding.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor


def rms_norm(states: Tensor, weight: Tensor, epsilon: float) -> Tensor:
    """States (..., d) over their root mean square, times `weight` (d,) (arXiv:1910.07467, eq. 4)."""
    if states.dtype != torch.float32 or weight.dtype != torch.float32:
        scale = torch.rsqrt(states.float().square().mean(-1, keepdim=True) + epsilon)
        return weight * (states.float() * scale).to(states.dtype)
    normed: Tensor = (_norm if torch.is_grad_enabled() else _norm_forward)(states, weight, epsilon)[0]
    return normed


def rotate(states: Tensor, cosine: Tensor, sine: Tensor) -> Tensor:
    """States (..., d) turned by angles whose cosine and sine (..., d) broadcast to them, first half with second."""
    turned: Tensor = _turn(states, cosine, sine) if torch.is_grad_enabled() else _turned(states, cosine, sine, 1.0)
    return turned


def _norm_forward(states: Tensor, weight: Tensor, epsilon: float) -> tuple[Tensor, Tensor]:
    width = states.shape[-1]
    scale = torch.linalg.vector_norm(states, dim=-1, keepdim=True).square_().div_(width).add_(epsilon).rsqrt_()
    return (states * scale).mul_(weight), scale


@torch.library.custom_op("lookact::rms_norm", mutates_args=())
def _norm(states: Tensor, weight: Tensor, epsilon: float) -> tuple[Tensor, Tensor]:
    return _norm_forward(states, weight, epsilon)


def _norm_setup(ctx: Any, inputs: tuple[Tensor, Tensor, float], output: tuple[Tensor, Tensor]) -> None:
    ctx.save_for_backward(inputs[0], inputs[1], output[1])


def _norm_backward(ctx: Any, grad: Tensor, _: Tensor) -> tuple[Tensor, Tensor, None]:
    states, weight, scale = ctx.saved_tensors
    width = states.shape[-1]
    product = (grad * states).view(-1, width)
    grad_weight = (scale.view(1, -1) @ product).view(-1)
    along = (product @ weight).view_as(scale) * scale.square()
    grad_states = (grad * weight).addcmul_(states, along, value=-1.0 / width).mul_(scale)
    return grad_states, grad_weight, None


def _turned(states: Tensor, cosine: Tensor, sine: Tensor, sign: float) -> Tensor:
    half = states.shape[-1] // 2
    first, second = states[..., :half], states[..., half:]
    turned = states * cosine
    turned[..., :half].addcmul_(second, sine[..., :half], value=-sign)
    turned[..., half:].addcmul_(first, sine[..., half:], value=sign)
    return turned


@torch.library.custom_op("lookact::rotate", mutates_args=())
def _turn(states: Tensor, cosine: Tensor, sine: Tensor) -> Tensor:
    return _turned(states, cosine, sine, 1.0)


def _turn_setup(ctx: Any, inputs: tuple[Tensor, Tensor, Tensor], output: Tensor) -> None:
    ctx.save_for_backward(inputs[1], inputs[2])


def _turn_backward(ctx: Any, grad: Tensor) -> tuple[Tensor, None, None]:
    # the inverse of a turn is the turn back
    cosine, sine = ctx.saved_tensors
    return _turned(grad, cosine, sine, -1.0), None, None


_norm.register_autograd(_norm_backward, setup_context=_norm_setup)
_turn.register_autograd(_turn_backward, setup_context=_turn_setup)
