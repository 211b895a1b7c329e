"""Qwen3-VL's vision tower, run over all images of a batch in one attention where they have one size."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional
from transformers.models.qwen3_vl.modeling_qwen3_vl import Qwen3VLVisionBlock
from transformers.vision_utils import get_vision_interpolation_indices_and_weights, get_vision_position_ids

from lookact.models.vlm.kernels.fused import rotate

Run = Callable[..., Any]


def vision_features(tower: Any, pixels: Sequence[Tensor], grids: Tensor, run: Run) -> tuple[Tensor, list[Tensor]]:
    """Features (m, d) of the images' tokens, and the same of each deepstack level.

    `pixels` are the images' patches (patches, d) in any number of parts; `run(function, *args)` calls a block, with
    or without activation checkpointing.
    """
    device, dtype = tower.pos_embed.weight.device, tower.pos_embed.weight.dtype
    pixels = [part.to(device, dtype) for part in pixels]
    same = bool((grids == grids[0]).all()) and int(grids[0, 0]) == 1
    if not same or not is_plain(tower):
        output = tower(torch.cat(pixels), grid_thw=grids.to(device), return_dict=True)
        return output.pooler_output, output.deepstack_features
    return same_sized(tower, pixels, grids.to(device), run)


def is_plain(tower: Any) -> bool:
    """Whether the tower can be run in parts: not sharded, no hook that moves it around, no adapter on its patches."""
    blocks = all(type(block) is Qwen3VLVisionBlock and not hasattr(block, "_hf_hook") for block in tower.blocks)
    return blocks and not hasattr(tower, "_hf_hook") and type(tower.patch_embed.proj) is nn.Conv3d


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
        hidden = run(block_forward, block, hidden, rotary)
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


def block_forward(block: Any, hidden: Tensor, rotary: tuple[Tensor, Tensor]) -> Tensor:
    """One vision block over images (k, patches, d), each attending to itself alone."""
    hidden = hidden + attention(block.attn, block.norm1(hidden), rotary)
    updated: Tensor = hidden + block.mlp(block.norm2(hidden))
    return updated


def attention(layer: Any, hidden: Tensor, rotary: tuple[Tensor, Tensor]) -> Tensor:
    """Self-attention of (k, patches, d) with the weights of a stock layer."""
    count, patches, _ = hidden.shape
    query, key, value = layer.qkv(hidden).view(count, patches, 3, layer.num_heads, -1).unbind(2)
    cosine, sine = rotary[0].unsqueeze(1), rotary[1].unsqueeze(1)
    query, key = (rotate(part.float(), cosine, sine).to(value.dtype) for part in (query, key))
    mixed = functional.scaled_dot_product_attention(
        query.transpose(1, 2), key.transpose(1, 2), value.transpose(1, 2), scale=layer.scaling
    )
    projected: Tensor = layer.proj(mixed.transpose(1, 2).reshape(count, patches, -1))
    return projected
