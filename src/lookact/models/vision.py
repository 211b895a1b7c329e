"""Qwen3-VL's vision tower, run over all images of a batch in one attention where they have one size."""

from __future__ import annotations

from typing import Any

from torch import Tensor, nn
from torch.nn import functional
from transformers.models.qwen3_vl.modeling_qwen3_vl import apply_rotary_pos_emb_vision
from transformers.vision_utils import get_vision_interpolation_indices_and_weights, get_vision_position_ids


def vision_features(tower: Any, pixels: Tensor, grids: Tensor, run: Any) -> tuple[Tensor, list[Tensor]]:
    """Features (m, d) of the images' tokens, and the same of each deepstack level.

    `run(module, *args)` calls a block, with or without activation checkpointing.
    """
    pixels = pixels.to(tower.pos_embed.weight.device, tower.pos_embed.weight.dtype)
    same = bool((grids == grids[0]).all()) and int(grids[0, 0]) == 1
    # a tower spread over devices moves tensors in its blocks' hooks, which only its own forward calls
    spread = any(hasattr(module, "_hf_hook") for module in (tower, *tower.blocks))
    if spread or not same:
        output = tower(pixels, grid_thw=grids, return_dict=True)
        return output.pooler_output, output.deepstack_features
    return same_sized(tower, pixels, grids, run)


def same_sized(tower: Any, pixels: Tensor, grids: Tensor, run: Any) -> tuple[Tensor, list[Tensor]]:
    """`vision_features` of k stills of one size: positions are worked out once, attention is one batch of k."""
    count, patches = len(grids), int(grids[0].prod())
    one = grids[:1]
    hidden = embed_patches(tower.patch_embed, pixels)
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


def embed_patches(layer: Any, pixels: Tensor) -> Tensor:
    """Patches (m, d) to (m, hidden): the convolution's stride is its kernel, so that it is a matrix product."""
    kernel = layer.proj
    if type(kernel) is not nn.Conv3d:  # an adapter sits on it
        embedded: Tensor = layer(pixels)
        return embedded
    return functional.linear(pixels, kernel.weight.flatten(1), kernel.bias)


def block_forward(block: Any, hidden: Tensor, rotary: tuple[Tensor, Tensor]) -> Tensor:
    """One vision block over images (k, patches, d), each attending to itself alone."""
    hidden = hidden + attention(block.attn, block.norm1(hidden), rotary)
    updated: Tensor = hidden + block.mlp(block.norm2(hidden))
    return updated


def attention(layer: Any, hidden: Tensor, rotary: tuple[Tensor, Tensor]) -> Tensor:
    """Self-attention of (k, patches, d) with the weights of a stock layer."""
    count, patches, _ = hidden.shape
    query, key, value = layer.qkv(hidden).view(count, patches, 3, layer.num_heads, -1).unbind(2)
    query, key = apply_rotary_pos_emb_vision(query, key, *rotary)
    mixed = functional.scaled_dot_product_attention(
        query.transpose(1, 2), key.transpose(1, 2), value.transpose(1, 2), scale=layer.scaling
    )
    projected: Tensor = layer.proj(mixed.transpose(1, 2).reshape(count, patches, -1))
    return projected
