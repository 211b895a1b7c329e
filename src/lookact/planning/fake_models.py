"""Models of fake tensors: a recipe's own modules at their real size, without a byte of their weights."""

from __future__ import annotations

import math
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.functional import linear
from transformers import Qwen3VLForConditionalGeneration
from transformers.models.qwen2_vl.image_processing_pil_qwen2_vl import Qwen2VLImageProcessorPil

from lookact.models.actor_critic import ValueHead
from lookact.models.vlm.loading import LoraSpec, add_lora
from lookact.models.vlm.policy import ChatVLM
from lookact.planning.architectures import END, Vocabulary
from lookact.planning.tracker import Kind, MemoryTracker

NF4_BLOCK = 64
"""Weights that share one float32 scale."""


def fake_chat(
    tracker: MemoryTracker,
    config: Any,
    *,
    dtype: torch.dtype,
    attention: str,
    lora: LoraSpec | None,
    quantise: str | None,
    max_pixels: int,
    gradient_checkpointing: bool,
    value_head: bool,
) -> ChatVLM:
    """What `load_chat` would return, its weights counted by `tracker`."""
    # without a GPU there are no flash kernels; SDPA's keep as little: no scores of all pairs
    config._attn_implementation = "eager" if attention == "eager" else "sdpa"
    with torch.device("meta"):
        model: Any = _of_type(config, dtype)
        if quantise is not None:
            model.requires_grad_(False)
            _quantise(model, skip=model.lm_head)
        if lora is not None:
            model = add_lora(model, lora)
        vocabulary = config.text_config.vocab_size
        chat = ChatVLM(
            model, Vocabulary(vocabulary, end=min(END, vocabulary - 1)), _image_processor(config, max_pixels)
        )
        chat.value_head = ValueHead(config.text_config.hidden_size) if value_head else None
    make_fake(tracker, chat, adapted=lora is not None)
    chat.gradient_checkpointing = gradient_checkpointing
    return chat


def make_fake(tracker: MemoryTracker, module: nn.Module, *, adapted: bool = False) -> None:
    """Puts fake tensors in the place of a module's meta ones, tied ones once."""
    known: dict[int, Tensor] = {}
    for part in module.modules():
        for held in (part._parameters, part._buffers):
            for name, old in held.items():
                if old is None:
                    continue
                if id(old) not in known:
                    known[id(old)] = fake_like(tracker, old, adapted=adapted)
                held[name] = known[id(old)]  # type: ignore[assignment]


def fake_like(tracker: MemoryTracker, old: Tensor, *, adapted: bool) -> Tensor:
    """A fake parameter or buffer of the same shape, counted as a weight or, where it learns beside them, an adapter."""
    fake = tracker.empty(old.shape, old.dtype)
    new = nn.Parameter(fake, requires_grad=old.requires_grad) if isinstance(old, nn.Parameter) else fake
    kind: Kind = "adapters" if adapted and old.requires_grad else "weights"
    tracker.label([new], kind)
    return new


def _of_type(config: Any, dtype: torch.dtype) -> Any:
    before = torch.get_default_dtype()
    torch.set_default_dtype(dtype)
    try:
        return Qwen3VLForConditionalGeneration(config).eval()
    finally:
        torch.set_default_dtype(before)


def _image_processor(config: Any, max_pixels: int) -> Any:
    vision = config.vision_config
    cell = (vision.patch_size * vision.spatial_merge_size) ** 2
    return Qwen2VLImageProcessorPil(
        size={"shortest_edge": cell, "longest_edge": max_pixels},
        patch_size=vision.patch_size,
        temporal_patch_size=vision.temporal_patch_size,
        merge_size=vision.spatial_merge_size,
        image_mean=[0.5] * 3,
        image_std=[0.5] * 3,
    )


class Nf4Linear(nn.Linear):
    """A linear whose frozen weight is held in 4 bits and unpacked for each product, as bitsandbytes does it."""

    def __init__(self, old: nn.Linear) -> None:
        super().__init__(old.in_features, old.out_features, bias=old.bias is not None, dtype=old.weight.dtype)
        entries, self.compute = old.weight.numel(), old.weight.dtype
        self.weight = nn.Parameter(torch.empty(math.ceil(entries / 2), 1, dtype=torch.uint8), requires_grad=False)
        self.register_buffer("scales", torch.empty(math.ceil(entries / NF4_BLOCK)))

    def forward(self, states: Tensor) -> Tensor:
        shape = (self.out_features, self.in_features)
        product: Tensor = _Unpacked.apply(states, self.weight, shape, self.compute)  # type: ignore[no-untyped-call]
        return product if self.bias is None else product + self.bias


class _Unpacked(torch.autograd.Function):
    """A product with a weight that is unpacked anew in the backward pass."""

    @staticmethod
    def forward(ctx: Any, states: Tensor, packed: Tensor, shape: tuple[int, int], dtype: torch.dtype) -> Tensor:
        ctx.packed, ctx.shape, ctx.dtype = packed, shape, dtype
        return linear(states.to(dtype), packed.new_empty(shape, dtype=dtype))

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor, None, None, None]:
        return grad @ ctx.packed.new_empty(ctx.shape, dtype=ctx.dtype), None, None, None


def _quantise(model: nn.Module, *, skip: nn.Module) -> None:
    for parent in list(model.modules()):
        for name, child in list(parent.named_children()):
            if type(child) is nn.Linear and child is not skip:
                setattr(parent, name, Nf4Linear(child).requires_grad_(False))
