"""Qwen3-VL's decoder layers, the last of them only where its output is asked for.

A loss reads few positions, and nothing attends to the last layer's output: beyond keys and values it need not run
anywhere else. In a two-layer model that is a third of the work.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor
from torch.nn import functional
from transformers.models.qwen3_vl.modeling_qwen3_vl import Qwen3VLTextDecoderLayer, rotate_half

Rotary = tuple[Tensor, Tensor]


def call_layer(layer: Any, hidden: Tensor, mask: Tensor | None, rotary: Rotary, cache: Any) -> Tensor:
    """One decoder layer over hidden states (b, n, d)."""
    updated: Tensor = layer(hidden, attention_mask=mask, position_embeddings=rotary, past_key_values=cache)
    return updated


def call_layer_at(layer: Any, hidden: Tensor, mask: Tensor | None, rotary: Rotary, cache: Any, keep: Tensor) -> Tensor:
    """One decoder layer over (b, n, d), its output (b, k, d) at the places `keep` (b, k) alone."""
    if not splits(layer):
        return pick(call_layer(layer, hidden, mask, rotary, cache), keep)
    attention = layer.self_attn
    normed = layer.input_layernorm(hidden)
    shape = (*hidden.shape[:2], -1, attention.head_dim)
    key = rotate(attention.k_norm(attention.k_proj(normed).view(shape)), rotary)
    value = attention.v_proj(normed).view(shape).transpose(1, 2)
    if cache is not None:
        key, value = cache.update(key, value, attention.layer_idx)
    query = attention.q_proj(pick(normed, keep)).view(*keep.shape, -1, attention.head_dim)
    query = rotate(attention.q_norm(query), (pick(rotary[0], keep), pick(rotary[1], keep)))
    mixed = functional.scaled_dot_product_attention(
        query,
        key,
        value,
        attn_mask=rows_of(mask, keep, hidden.shape[1], key.shape[2]),
        scale=attention.scaling,
        enable_gqa=True,
    )
    updated = pick(hidden, keep) + attention.o_proj(mixed.transpose(1, 2).flatten(2))
    result: Tensor = updated + layer.mlp(layer.post_attention_layernorm(updated))
    return result


def splits(layer: Any) -> bool:
    """Whether a layer can be run in parts: the dense kind under SDPA, with no hook that moves it between devices."""
    plain = isinstance(layer, Qwen3VLTextDecoderLayer) and not hasattr(layer, "_hf_hook")
    return plain and layer.self_attn.config._attn_implementation == "sdpa"


def pick(states: Tensor, keep: Tensor) -> Tensor:
    """States (b, n, d) at the places `keep` (b, k) -> (b, k, d)."""
    return states.gather(1, keep.unsqueeze(-1).expand(-1, -1, states.shape[-1]))


def rotate(states: Tensor, rotary: Rotary) -> Tensor:
    """Heads (b, n, h, d) turned to their positions, as (b, h, n, d)."""
    cosine, sine = rotary[0].unsqueeze(2), rotary[1].unsqueeze(2)
    return (states * cosine + rotate_half(states) * sine).transpose(1, 2)


def rows_of(mask: Tensor | None, keep: Tensor, length: int, total: int) -> Tensor:
    """The attention mask (b, 1, k, total) of queries at `keep` (b, k) of the newest `length` tokens."""
    if mask is not None:
        return mask.expand(len(keep), -1, -1, -1).gather(2, keep[:, None, :, None].expand(-1, 1, -1, mask.shape[-1]))
    places = torch.arange(total, device=keep.device)
    return (places <= keep[:, :, None] + (total - length)).unsqueeze(1)
