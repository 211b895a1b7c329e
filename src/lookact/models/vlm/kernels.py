"""Fast paths of Qwen3-VL with the stock weights; the Hugging Face modules are their oracle in the tests.

- Decoder: the last layer runs only where its output is read. A loss reads few positions and nothing attends to the last
  layer's output, so that beyond keys and values it need not run elsewhere: a third of a two-layer model's work.
- Vision tower: all images of one size go through one batched attention.
- RMS norm and rotation: closed-form backward passes. Autograd keeps nine tensors for a norm, the closed form three.

All are equal to the stock modules up to rounding. `LOOKACT_KERNELS=0` turns them off and runs the stock modules whole:
a whole step of nav-rloo on a CPU then takes 1.7 times as long (`benchmarks/nav.py`).
"""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import Tensor, nn
from torch.distributed.fsdp import FSDPModule
from torch.distributed.tensor import DTensor
from torch.nn import functional
from transformers.models.qwen3_vl.modeling_qwen3_vl import Qwen3VLTextDecoderLayer, Qwen3VLVisionBlock
from transformers.vision_utils import get_vision_interpolation_indices_and_weights, get_vision_position_ids

ENABLED = os.environ.get("LOOKACT_KERNELS", "1") != "0"
Rotary = tuple[Tensor, Tensor]
"""Cosine and sine (b, n, d) of each position's angles."""
Run = Callable[..., Any]
"""Calls a block, with or without activation checkpointing: `run(function, *args)`."""


def attention_mask(
    kernel: str, attend: Tensor | None, hidden: Tensor, *, window: int | None = None, joined: Tensor | None = None
) -> Tensor | None:
    """The causal mask of new states (b, n, d) over tokens of which `attend` (b, past + n) says which are real.

    A `window` hides all but the last tokens; each run of True in `joined` (b, n) sees itself whole.

    FlashAttention is causal by itself and wants (b, past + n), from which it cuts padding out; SDPA wants
    (b, 1, n, past + n) with True where a query looks; eager attention adds the same as numbers.
    """
    if kernel.startswith("flash"):
        return None if attend is None or bool(attend.all()) else attend
    if attend is None:
        if kernel == "sdpa" and joined is None and (window is None or hidden.shape[1] <= window):
            return None
        attend = torch.ones(hidden.shape[:2], dtype=torch.bool, device=hidden.device)
    n, total = hidden.shape[1], attend.shape[1]
    visible = attend[:, None, None, :]
    if n > 1:
        query = torch.arange(total - n, total, device=attend.device)[:, None]
        key = torch.arange(total, device=attend.device)[None, :]
        # padding looks at itself, since a row of nothing but masked keys would give NaN
        visible = (visible & (key <= query)) | (key == query)
    if joined is not None and n > 1:
        visible = visible | functional.pad(same_run(joined), (total - n, 0))
    if window is not None:
        # counted in real tokens: a cache has padding between its turns
        place = attend.cumsum(dim=1)
        visible = visible & (place[:, None, -n:, None] - place[:, None, None, :] < window)
    if kernel != "eager":
        return visible
    added = torch.zeros(visible.shape, dtype=hidden.dtype, device=hidden.device)
    return added.masked_fill(~visible, torch.finfo(hidden.dtype).min)


def same_run(marked: Tensor) -> Tensor:
    """(b, 1, n, n) True where two places of (b, n) are in one unbroken run of True."""
    starts = marked & ~functional.pad(marked, (1, 0))[:, :-1]
    run = torch.where(marked, starts.cumsum(dim=1), 0)
    return ((run[:, :, None] == run[:, None, :]) & marked[:, :, None])[:, None]


def decoder_layer(
    layer: Any, hidden: Tensor, mask: Tensor | None, rotary: Rotary, cache: Any = None, keep: Tensor | None = None
) -> Tensor:
    """One layer over hidden states (b, n, d); its output at the places `keep` (b, k) alone if given.

    `mask` is as `attention_mask` makes it; None is plain causal attention.
    """
    if not is_plain_layer(layer):
        whole: Tensor = layer(hidden, attention_mask=mask, position_embeddings=rotary, past_key_values=cache)
        return whole if keep is None else pick(whole, keep)
    normed = rms_norm_of(layer.input_layernorm, hidden)
    key, value = keys_values(layer.self_attn, normed, rotary, cache)
    if keep is not None:
        mask = mask_rows(mask, keep, hidden.shape[1], key.shape[2])
        hidden, normed, rotary = pick(hidden, keep), pick(normed, keep), (pick(rotary[0], keep), pick(rotary[1], keep))
    hidden = hidden + self_attention(layer.self_attn, normed, key, value, mask, rotary)
    updated: Tensor = hidden + layer.mlp(rms_norm_of(layer.post_attention_layernorm, hidden))
    return updated


def is_plain_layer(layer: Any) -> bool:
    """Whether a layer can be run in parts: the dense kind under SDPA, not sharded, no hook that moves it around."""
    plain = ENABLED and isinstance(layer, Qwen3VLTextDecoderLayer) and not hasattr(layer, "_hf_hook")
    here = plain and not isinstance(layer.input_layernorm.weight, DTensor)
    # a sharded layer is whole while its backward pass recomputes it: it must take the way that its forward pass took
    here = here and not (isinstance(layer, FSDPModule) and torch.is_grad_enabled())
    return here and layer.self_attn.config._attn_implementation == "sdpa"


def keys_values(layer: Any, normed: Tensor, rotary: Rotary, cache: Any) -> tuple[Tensor, Tensor]:
    """Keys and values (b, h, total, d), those of the past in front."""
    shape = (*normed.shape[:2], -1, layer.head_dim)
    key = heads(rms_norm_of(layer.k_norm, layer.k_proj(normed).view(shape)), rotary)
    value = layer.v_proj(normed).view(shape).transpose(1, 2)
    if cache is not None:
        key, value = cache.update(key, value, layer.layer_idx)
    return key, value


def self_attention(
    layer: Any, normed: Tensor, key: Tensor, value: Tensor, mask: Tensor | None, rotary: Rotary
) -> Tensor:
    """Grouped-query attention of the queries (b, n, d) over keys and values."""
    shape = (*normed.shape[:2], -1, layer.head_dim)
    query = heads(rms_norm_of(layer.q_norm, layer.q_proj(normed).view(shape)), rotary)
    attended = functional.scaled_dot_product_attention(
        query,
        key,
        value,
        attn_mask=mask,
        is_causal=mask is None and query.shape[2] > 1,
        scale=layer.scaling,
        enable_gqa=True,
    )
    projected: Tensor = layer.o_proj(attended.transpose(1, 2).flatten(2))
    return projected


def rms_norm_of(module: Any, states: Tensor) -> Tensor:
    """`rms_norm` with a stock module's weight."""
    return rms_norm(states, module.weight, module.variance_epsilon)


def heads(states: Tensor, rotary: Rotary) -> Tensor:
    """Heads (b, n, h, d) rotated to their positions, as (b, h, n, d)."""
    return rotate(states, rotary[0].unsqueeze(2), rotary[1].unsqueeze(2)).transpose(1, 2)


def pick(states: Tensor, keep: Tensor) -> Tensor:
    """States (b, n, d) at the places `keep` (b, k) -> (b, k, d)."""
    picked: Tensor = states.gather(1, keep.unsqueeze(-1).expand(-1, -1, states.shape[-1]))
    return picked


def mask_rows(mask: Tensor | None, keep: Tensor, length: int, total: int) -> Tensor:
    """The mask (b, 1, k, total) of the queries at `keep` (b, k) among the newest `length` of `total` tokens."""
    if mask is not None:
        rows = keep[:, None, :, None].expand(-1, mask.shape[1], -1, mask.shape[-1])
        return mask.expand(len(keep), -1, -1, -1).gather(2, rows)
    places = torch.arange(total, device=keep.device)
    return (places <= keep[:, :, None] + (total - length)).unsqueeze(1)


def vision_features(tower: Any, pixels: Sequence[Tensor], grids: Tensor, run: Run) -> tuple[Tensor, list[Tensor]]:
    """Features (m, d) of the images' tokens, and the same of each deepstack level.

    `pixels` are the images' patches (patches, d) in any number of parts.
    """
    device, dtype = tower.pos_embed.weight.device, tower.pos_embed.weight.dtype
    pixels = [part.to(device, dtype) for part in pixels]
    same = bool((grids == grids[0]).all()) and int(grids[0, 0]) == 1
    if not same or not is_plain_tower(tower):
        output = tower(torch.cat(pixels), grid_thw=grids.to(device), return_dict=True)
        return output.pooler_output, output.deepstack_features
    return same_sized(tower, pixels, grids.to(device), run)


def is_plain_tower(tower: Any) -> bool:
    """Whether the tower can be run in parts: not sharded, no hook that moves it around, no adapter on its patches."""
    blocks = all(type(block) is Qwen3VLVisionBlock and not hasattr(block, "_hf_hook") for block in tower.blocks)
    return ENABLED and blocks and not hasattr(tower, "_hf_hook") and type(tower.patch_embed.proj) is nn.Conv3d


def same_sized(tower: Any, pixels: Sequence[Tensor], grids: Tensor, run: Run) -> tuple[Tensor, list[Tensor]]:
    """`vision_features` of k stills of one size: positions are worked out once, attention is one batch of k."""
    count, patches = len(grids), int(grids[0].prod())
    one = grids[:1]
    hidden = embed_patches(tower.patch_embed.proj, pixels)
    taps, weights = get_vision_interpolation_indices_and_weights(
        one,
        num_grid_per_side=tower.num_grid_per_side,
        mode=tower.interpolation_mode,
        align_corners=tower.interpolation_align_corners,
        spatial_merge_size=tower.spatial_merge_size,
    )
    place = (tower.pos_embed(taps) * weights[:, :, None]).sum(1).to(hidden.dtype)
    hidden = hidden.view(count, patches, -1) + place
    rotary = tower.rotary_pos_emb(hidden, get_vision_position_ids(one, tower.spatial_merge_size))
    levels = []
    for index, block in enumerate(tower.blocks):
        hidden = run(vision_block, block, hidden, rotary)
        if index in tower.deepstack_visual_indexes:
            merger = tower.deepstack_merger_list[list(tower.deepstack_visual_indexes).index(index)]
            levels.append(merger(hidden.flatten(0, 1)))
    return tower.merger(hidden.flatten(0, 1)), levels


def embed_patches(kernel: nn.Conv3d, pixels: Sequence[Tensor]) -> Tensor:
    """Patches of stills to (m, hidden): the convolution's stride is its kernel, so that it is a matrix product.

    All frames of a still are the same: one of them meets the sum of the frames' weights.
    """
    channels, frames = kernel.in_channels, kernel.kernel_size[0]
    # a row of words alone has no patches, and no shape to view them in
    parts = [part for part in pixels if len(part)]
    stills = torch.cat([part.view(len(part), channels, frames, -1)[:, :, 0] for part in parts])
    return functional.linear(stills.flatten(1), kernel.weight.sum(2).flatten(1), kernel.bias)


def vision_block(block: Any, hidden: Tensor, rotary: Rotary) -> Tensor:
    """One vision block over images (k, patches, d), each attending to itself alone."""
    hidden = hidden + vision_attention(block.attn, block.norm1(hidden), rotary)
    updated: Tensor = hidden + block.mlp(block.norm2(hidden))
    return updated


def vision_attention(layer: Any, hidden: Tensor, rotary: Rotary) -> Tensor:
    """Self-attention of (k, patches, d) with the weights of a stock layer."""
    count, patches, _ = hidden.shape
    query, key, value = layer.qkv(hidden).view(count, patches, 3, layer.num_heads, -1).unbind(2)
    cosine, sine = rotary[0].unsqueeze(1), rotary[1].unsqueeze(1)
    query, key = (rotate(part.float(), cosine, sine).to(value.dtype) for part in (query, key))
    attended = functional.scaled_dot_product_attention(
        query.transpose(1, 2), key.transpose(1, 2), value.transpose(1, 2), scale=layer.scaling
    )
    projected: Tensor = layer.proj(attended.transpose(1, 2).reshape(count, patches, -1))
    return projected


def rms_norm(states: Tensor, weight: Tensor, epsilon: float) -> Tensor:
    """States (..., d) over their root mean square, times `weight` (d,) (arXiv:1910.07467, eq. 4)."""
    if states.dtype != torch.float32 or weight.dtype != torch.float32:
        scale = torch.rsqrt(states.float().square().mean(-1, keepdim=True) + epsilon)
        return weight * (states.float() * scale).to(states.dtype)
    normed: Tensor = (_norm if torch.is_grad_enabled() else _norm_forward)(states, weight, epsilon)[0]
    return normed


def rotate(states: Tensor, cosine: Tensor, sine: Tensor) -> Tensor:
    """Rotary embedding: states (..., d) rotated by angles whose cosine and sine broadcast, first half with second."""
    rotated: Tensor = _rotate(states, cosine, sine) if torch.is_grad_enabled() else _rotated(states, cosine, sine, 1.0)
    return rotated


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


def _rotated(states: Tensor, cosine: Tensor, sine: Tensor, sign: float) -> Tensor:
    half = states.shape[-1] // 2
    first, second = states[..., :half], states[..., half:]
    rotated = states * cosine
    rotated[..., :half].addcmul_(second, sine[..., :half], value=-sign)
    rotated[..., half:].addcmul_(first, sine[..., half:], value=sign)
    return rotated


@torch.library.custom_op("lookact::rotate", mutates_args=())
def _rotate(states: Tensor, cosine: Tensor, sine: Tensor) -> Tensor:
    return _rotated(states, cosine, sine, 1.0)


def _rotate_setup(ctx: Any, inputs: tuple[Tensor, Tensor, Tensor], output: Tensor) -> None:
    ctx.save_for_backward(inputs[1], inputs[2])


def _rotate_backward(ctx: Any, grad: Tensor) -> tuple[Tensor, None, None]:
    # the inverse rotation has the opposite angle
    cosine, sine = ctx.saved_tensors
    return _rotated(grad, cosine, sine, -1.0), None, None


_norm.register_fake(_norm_forward)
_rotate.register_fake(lambda states, cosine, sine: _rotated(states, cosine, sine, 1.0))
_norm.register_autograd(_norm_backward, setup_context=_norm_setup)
_rotate.register_autograd(_rotate_backward, setup_context=_rotate_setup)
