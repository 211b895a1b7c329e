"""What sampler and learner ask of a family of vision-language models, and what its tiny checkpoint is made of."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from torch import Tensor

from lookact.types import Image

PATCH, MERGE, FRAMES, HEAD = 16, 2, 2, 32
Run = Callable[..., Any]
"""Calls a block, with or without activation checkpointing: `run(function, *args)`."""


@dataclass(frozen=True)
class TinySpec:
    """Sizes of the tiny model; the defaults have about 0.8M parameters."""

    hidden: int = 128
    layers: int = 2
    heads: int = 4
    key_heads: int = 2
    vision_hidden: int = 64
    vision_depth: int = 2
    image_size: int = 96
    """Largest side of a square image in pixels, a multiple of 32: one token per 32x32."""
    vocabulary: int = 768
    piece_length: int = 40
    """Longest piece in bytes, so that no whole prompt becomes one token."""
    context: int = 8192
    family: str = "qwen3-vl"


@dataclass(frozen=True)
class Family:
    """One family: how it spells and sees images, where its tokens stand, and who attends to whom."""

    name: str
    types: tuple[str, ...]
    """`model_type` of its checkpoints."""
    end: str
    """The token that ends a reply."""
    placeholder: str
    """Stands for one image in what the chat template writes."""
    vision: tuple[str, ...]
    """The parts of the model that make features of pixels."""
    load_images: Callable[[str, int | None, int | None], Any]
    """The image processor of a checkpoint within a budget of pixels: `(checkpoint, fewest, most)`."""
    encode_images: Callable[[Any, Sequence[Image]], tuple[Tensor, Tensor]]
    """`(image processor, images)` to pixels (n, d) and grids (k, 3), whose products are the images' shares of n."""
    image_text: Callable[[Any, Any, int, int], str]
    """`(config, image processor, height, width)`: what the text says in the placeholder's place."""
    features: Callable[[Any, Sequence[Tensor], Tensor, Run], tuple[Tensor, list[Tensor]]]
    """`(model, pixels, grids, run)` to features (m, d) of the image tokens, and of each deepstack level."""
    files: Callable[[Any, Any], Mapping[str, Mapping[str, Any]]]
    """`(config, image processor)`: the files beside the weights by which other programs build the processor."""
    mrope: bool = False
    """Whether positions have a time, a height and a width (multimodal RoPE), or are counted one by one."""
    joined_images: bool = False
    """Whether the tokens of one image attend to each other in both directions."""
    special_tokens: tuple[str, ...] = ()
    roles: Mapping[str, str] = field(default_factory=dict)
    """Which of them is the tokenizer's eos, pad and so on."""
    template: str = ""
    """Our own chat template for tiny checkpoints, in the family's form."""
    sentencepiece: bool = False
    """Whether its tokenizer writes spaces as ▁ and falls back to bytes; else it is byte-level."""
    tiny_config: Callable[[Callable[[str], int], int, TinySpec], Any] | None = None
    """`(token to id, vocabulary, spec)` to the configuration of the tiny model."""
    tiny_images: Callable[[TinySpec], Any] | None = None
    """The image processor of the tiny model."""


def write_files(family: Family, config: Any, processor: Any, folder: Path) -> None:
    """Writes what stands beside the weights of a checkpoint and describes its images."""
    for name, content in family.files(config, processor).items():
        (folder / name).write_text(json.dumps(content, indent=2) + "\n")


def text_sizes(spec: TinySpec, vocabulary: int) -> dict[str, Any]:
    """The decoder's sizes, by the names that all families share."""
    return {
        "vocab_size": vocabulary,
        "hidden_size": spec.hidden,
        "intermediate_size": 2 * spec.hidden,
        "num_hidden_layers": spec.layers,
        "num_attention_heads": spec.heads,
        "num_key_value_heads": spec.key_heads,
        "head_dim": HEAD,
        "max_position_embeddings": spec.context,
    }
