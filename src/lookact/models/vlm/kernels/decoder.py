"""Qwen3-VL's decoder layers with the stock weights, and only where their output is asked for.

A loss reads few positions, and nothing attends to the last layer's output: beyond keys and values it need not run
anywhere else. In a two-layer model that is a third of the work.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor
from torch.distributed.tensor import DTensor
from torch.nn import functional
from transformers.models.qwen3_vl.modeling_qwen3_vl import Qwen3VLTextDecoderLayer

from lookact.models.vlm.kernels.fused import rms_norm, rotate

Rotary = tuple[Tensor, Tensor]
"""Cosine and sine (b, n, d) of each position's angles."""


def decoder_layer(
    layer: Any, hidden: Tensor, mask: Tensor | None, rotary: Rotary, cache: Any = None, keep: Tensor | None = None
) -> Tensor:
    """One layer over hidden states (b, n, d); its output at the places `keep` (b, k) alone if given.

    `mask` (b, 1, n, total) is True where a query may look; None is plain causal attention.
    """
    if not is_plain(layer):
        whole: Tensor = layer(hidden, attention_mask=mask, position_embeddings=rotary, past_key_values=cache)
        return whole if keep is None else pick(whole, keep)
    normed = norm(layer.input_layernorm, hidden)
    key, value = keys_values(layer.self_attn, normed, rotary, cache)
    if keep is not None:
        mask = mask_rows(mask, keep, hidden.shape[1], key.shape[2])
        hidden, normed, rotary = pick(hidden, keep), pick(normed, keep), (pick(rotary[0], keep), pick(rotary[1], keep))
    hidden = hidden + mix(layer.self_attn, normed, key, value, mask, rotary)
    updated: Tensor = hidden + layer.mlp(norm(layer.post_attention_layernorm, hidden))
    return updated


def is_plain(layer: Any) -> bool:
    """Whether a layer can be run in parts: the dense kind under SDPA, whole here, no hook that moves it around."""
    plain = isinstance(layer, Qwen3VLTextDecoderLayer) and not hasattr(layer, "_hf_hook")
    here = plain and not isinstance(layer.input_layernorm.weight, DTensor)
    return here and layer.self_attn.config._attn_implementation == "sdpa"


def keys_values(attention: Any, normed: Tensor, rotary: Rotary, cache: Any) -> tuple[Tensor, Tensor]:
    """Keys and values (b, h, total, d), those of the past in front."""
    shape = (*normed.shape[:2], -1, attention.head_dim)
    key = heads(norm(attention.k_norm, attention.k_proj(normed).view(shape)), rotary)
    value = attention.v_proj(normed).view(shape).transpose(1, 2)
    if cache is not None:
        key, value = cache.update(key, value, attention.layer_idx)
    return key, value


def mix(attention: Any, normed: Tensor, key: Tensor, value: Tensor, mask: Tensor | None, rotary: Rotary) -> Tensor:
    """What each of the queries (b, n, d) takes from the values it may look at."""
    shape = (*normed.shape[:2], -1, attention.head_dim)
    query = heads(norm(attention.q_norm, attention.q_proj(normed).view(shape)), rotary)
    mixed = functional.scaled_dot_product_attention(
        query,
        key,
        value,
        attn_mask=mask,
        is_causal=mask is None and query.shape[2] > 1,
        scale=attention.scaling,
        enable_gqa=True,
    )
    projected: Tensor = attention.o_proj(mixed.transpose(1, 2).flatten(2))
    return projected


def norm(module: Any, states: Tensor) -> Tensor:
    """A stock norm's result, cheaper."""
    return rms_norm(states, module.weight, module.variance_epsilon)


def heads(states: Tensor, rotary: Rotary) -> Tensor:
    """Heads (b, n, h, d) turned to their positions, as (b, h, n, d)."""
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
