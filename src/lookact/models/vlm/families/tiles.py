"""SmolVLM (and Idefics3), InternVL and Gemma 3: images as square tiles of one size, positions counted one by one."""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Sequence
from itertools import groupby
from typing import Any

import numpy as np
import torch
from torch import Tensor
from transformers import AutoImageProcessor, Gemma3Config, InternVLConfig, SmolVLMConfig
from transformers.models.gemma3.image_processing_pil_gemma3 import Gemma3ImageProcessorPil
from transformers.models.got_ocr2.image_processing_pil_got_ocr2 import GotOcr2ImageProcessorPil
from transformers.models.smolvlm.image_processing_pil_smolvlm import SmolVLMImageProcessorPil
from transformers.models.smolvlm.processing_smolvlm import get_image_prompt_string

from lookact.errors import ConfigError, DataError
from lookact.models.vlm.families.family import HEAD, MERGE, PATCH, Family, Run, TinySpec, text_sizes
from lookact.types import Image

HALF = [0.5, 0.5, 0.5]
GRID = 6
"""Rows and columns of tiles that SmolVLM has tokens for."""
SMOL_TEMPLATE = """\
{{- '<|im_start|>' -}}
{%- for message in messages -%}
    {{- message.role | capitalize + (':' if message.content[0].type == 'image' else ': ') -}}
    {%- for part in message.content -%}
        {{- part.text if part.type == 'text' else '<image>' -}}
    {%- endfor -%}
    {{- '<end_of_utterance>\\n' -}}
{%- endfor -%}
{%- if add_generation_prompt -%}
    {{- 'Assistant:' -}}
{%- endif -%}
"""
INTERN_TEMPLATE = """\
{%- for message in messages -%}
    {{- '<|im_start|>' + message.role + '\\n' -}}
    {%- if message.content is string -%}
        {{- message.content -}}
    {%- else -%}
        {%- for part in message.content -%}
            {{- part.text if part.type == 'text' else '<IMG_CONTEXT>\\n' -}}
        {%- endfor -%}
    {%- endif -%}
    {{- '<|im_end|>\\n' -}}
{%- endfor -%}
{%- if add_generation_prompt -%}
    {{- '<|im_start|>assistant\\n' -}}
{%- endif -%}
"""
GEMMA_TEMPLATE = """\
{{- bos_token -}}
{%- set told = namespace(system='') -%}
{%- for message in messages -%}
    {%- if message.role == 'system' -%}
        {%- set told.system = (message.content if message.content is string else message.content[0].text) + '\\n\\n' -%}
    {%- else -%}
        {{- '<start_of_turn>' + ('model' if message.role == 'assistant' else message.role) + '\\n' + told.system -}}
        {%- set told.system = '' -%}
        {%- if message.content is string -%}
            {{- message.content | trim -}}
        {%- else -%}
            {%- for part in message.content -%}
                {{- part.text | trim if part.type == 'text' else '<start_of_image>' -}}
            {%- endfor -%}
        {%- endif -%}
        {{- '<end_of_turn>\\n' -}}
    {%- endif -%}
{%- endfor -%}
{%- if add_generation_prompt -%}
    {{- '<start_of_turn>model\\n' -}}
{%- endif -%}
"""


def load_images(base: str, min_pixels: int | None, max_pixels: int | None) -> Any:
    """The checkpoint's image processor; `max_pixels` bounds its tiles, one at least."""
    processor = AutoImageProcessor.from_pretrained(base, backend="pil", trust_remote_code=False)
    if min_pixels is not None:
        raise ConfigError(f"min_pixels {min_pixels}: images of {base} have one size; leave it out")
    if max_pixels is not None:
        limit_tiles(processor, max_pixels)
    return processor


def limit_tiles(processor: Any, max_pixels: int) -> None:
    """At most as many tiles as `max_pixels` hold."""
    if hasattr(processor, "max_image_size"):
        side = processor.max_image_size["longest_edge"]
        processor.size = {"longest_edge": side * max(1, math.isqrt(max_pixels // side**2))}
    elif hasattr(processor, "max_patches"):
        processor.max_patches = max(1, max_pixels // processor.size["height"] ** 2)


def encode_images(processor: Any, images: Sequence[Image]) -> tuple[Tensor, Tensor]:
    """Images to pixels (tiles, 3 * side * side) and grids (k, 3) of tiles, ones and ones."""
    if not images:
        return torch.zeros(0, 3), torch.zeros(0, 3, dtype=torch.long)
    pixels, grids = [], []
    # of one shape at a time: the same number of tiles each, and none that is padding
    for _, run in groupby(images, key=np.shape):
        alike = list(run)
        tiles = encode_alike(processor, alike)
        pixels.append(tiles.flatten(1))
        grids.append(torch.tensor([[len(tiles) // len(alike), 1, 1]]).expand(len(alike), 3))
    return torch.cat(pixels), torch.cat(grids)


def encode_alike(processor: Any, images: list[Image]) -> Tensor:
    """Tiles (n, 3, side, side) of images of one shape, those of an image side by side."""
    # InternVL's processor asks for tiles whatever the image processor's own setting; others take no such word
    more = {"crop_to_patches": True} if hasattr(processor, "crop_to_patches") else {}
    nested = [[image] for image in images] if hasattr(processor, "max_image_size") else images
    encoded = processor(nested, input_data_format="channels_last", return_tensors="pt", **more)
    if not bool(encoded.get("pixel_attention_mask", torch.ones(1)).all()):
        raise DataError(f"images of {images[0].shape[:2]} are padded by the image processor: make them square")
    tiles: Tensor = encoded["pixel_values"]
    return tiles.flatten(0, -4)


def features(core: Any, pixels: Sequence[Tensor], grids: Tensor, run: Run) -> tuple[Tensor, list[Tensor]]:
    """The stock vision tower and projector over all tiles; no levels."""
    weight = next((core.vision_model if hasattr(core, "vision_model") else core.vision_tower).parameters())
    # a row of words alone has no tiles
    flat = torch.cat([part for part in pixels if len(part)]).to(weight.device, weight.dtype)
    side = math.isqrt(flat.shape[1] // 3)
    tiles = flat.view(-1, 3, side, side)
    nested = tiles[None] if hasattr(core, "connector") else tiles
    seen = run(lambda shown: core.get_image_features(pixel_values=shown, return_dict=True).pooler_output, nested)
    return seen.flatten(0, 1), []


def smol_text(config: Any, processor: Any, height: int, width: int) -> str:
    """Tiles in rows and columns, then the whole; a single tile is the whole."""
    blank = np.zeros((height, width, 3), dtype=np.uint8)
    told = processor([[blank]], input_data_format="channels_last", return_row_col_info=True, return_tensors="pt")
    side = config.vision_config.image_size // config.vision_config.patch_size // config.scale_factor
    (rows,), (columns,) = told["rows"][0], told["cols"][0]
    # the stock function: its rows, columns and line breaks are what the model was trained on
    written: str = get_image_prompt_string(
        int(rows), int(columns), side**2, "<fake_token_around_image>", "<image>", "<global-img>"
    )
    return written


def intern_text(config: Any, processor: Any, height: int, width: int) -> str:
    """The tokens of all tiles between two marks."""
    tiles = len(encode_alike(processor, [np.zeros((height, width, 3), dtype=np.uint8)]))
    return f"<img>{'<IMG_CONTEXT>' * config.image_seq_length * tiles}</img>"


def gemma_text(config: Any, processor: Any, height: int, width: int) -> str:
    """As many soft tokens for every image, between two marks and empty lines."""
    return f"\n\n<start_of_image>{'<image_soft_token>' * config.mm_tokens_per_image}<end_of_image>\n\n"


def described(processor: Any, name: str) -> dict[str, Any]:
    """The image processor's settings under the names that programs with torchvision know."""
    settings: dict[str, Any] = json.loads(processor.to_json_string())
    kind = type(processor).__name__.removesuffix("Pil")
    return settings | {"image_processor_type": kind, "processor_class": name}


def smol_files(config: Any, processor: Any) -> dict[str, dict[str, Any]]:
    """Beside the image processor's the video processor's, and how many tokens a tile has."""
    side = config.vision_config.image_size // config.vision_config.patch_size // config.scale_factor
    name = "Idefics3Processor" if config.model_type == "idefics3" else "SmolVLMProcessor"
    images = described(processor, name)
    longest = {"longest_edge": processor.max_image_size["longest_edge"]}
    video = {"size": longest, "max_image_size": longest, "image_mean": images["image_mean"]}
    video |= {"image_std": images["image_std"], "video_processor_type": "SmolVLMVideoProcessor"}
    return {
        "preprocessor_config.json": images,
        "video_preprocessor_config.json": video,
        "processor_config.json": {"processor_class": name, "image_seq_len": side**2},
    }


def intern_files(config: Any, processor: Any) -> dict[str, dict[str, Any]]:
    """Beside the image processor's the video processor's, and how many tokens a tile has."""
    images = described(processor, "InternVLProcessor")
    video = {key: images[key] for key in ("size", "image_mean", "image_std")}
    return {
        "preprocessor_config.json": images,
        "video_preprocessor_config.json": video | {"video_processor_type": "InternVLVideoProcessor"},
        "processor_config.json": {
            "processor_class": "InternVLProcessor",
            "image_seq_length": config.image_seq_length,
        },
    }


def gemma_files(config: Any, processor: Any) -> dict[str, dict[str, Any]]:
    """Beside the image processor's how many tokens an image has."""
    length = {"processor_class": "Gemma3Processor", "image_seq_length": config.mm_tokens_per_image}
    return {"preprocessor_config.json": described(processor, "Gemma3Processor"), "processor_config.json": length}


def vision_sizes(spec: TinySpec) -> dict[str, Any]:
    """The vision tower's sizes, by the names that all three share."""
    return {
        "hidden_size": spec.vision_hidden,
        "intermediate_size": 2 * spec.vision_hidden,
        "num_hidden_layers": spec.vision_depth,
        "num_attention_heads": max(1, spec.vision_hidden // HEAD),
        "image_size": spec.image_size,
        "patch_size": PATCH,
    }


def tiny_smol(token: Callable[[str], int], vocabulary: int, spec: TinySpec) -> SmolVLMConfig:
    """SmolVLM's configuration at the sizes of `spec`: a Llama behind a SigLIP."""
    rope = {"rope_type": "default", "rope_theta": 1e4}
    text = text_sizes(spec, vocabulary) | {"model_type": "llama", "rope_parameters": rope}
    return SmolVLMConfig(
        text_config=text,
        vision_config=vision_sizes(spec),
        scale_factor=MERGE,
        image_token_id=token("<image>"),
        pad_token_id=token("<|im_end|>"),
        tie_word_embeddings=True,
        dtype="float32",
    )


def tiny_intern(token: Callable[[str], int], vocabulary: int, spec: TinySpec) -> InternVLConfig:
    """InternVL's configuration at the sizes of `spec`: a Qwen3 behind an InternViT."""
    rope = {"rope_type": "default", "rope_theta": 1e4}
    return InternVLConfig(
        text_config=text_sizes(spec, vocabulary) | {"model_type": "qwen3", "rope_parameters": rope},
        vision_config=vision_sizes(spec),
        downsample_ratio=1 / MERGE,
        image_seq_length=(spec.image_size // PATCH // MERGE) ** 2,
        image_token_id=token("<IMG_CONTEXT>"),
        tie_word_embeddings=True,
        dtype="float32",
    )


def tiny_gemma(token: Callable[[str], int], vocabulary: int, spec: TinySpec) -> Gemma3Config:
    """Gemma 3's configuration at the sizes of `spec`: every other layer looks back over a window alone."""
    kinds = ["sliding_attention" if layer % 2 == 0 else "full_attention" for layer in range(spec.layers)]
    rope = {kind: {"rope_type": "default", "rope_theta": 1e4} for kind in ("sliding_attention", "full_attention")}
    more = {"layer_types": kinds, "sliding_window": 64, "query_pre_attn_scalar": HEAD, "rope_parameters": rope}
    return Gemma3Config(
        text_config=text_sizes(spec, vocabulary) | more,
        vision_config=vision_sizes(spec) | {"vision_use_head": False},
        mm_tokens_per_image=(spec.image_size // PATCH // MERGE) ** 2,
        image_token_index=token("<image_soft_token>"),
        boi_token_index=token("<start_of_image>"),
        eoi_token_index=token("<end_of_image>"),
        eos_token_id=token("<end_of_turn>"),
        tie_word_embeddings=True,
        dtype="float32",
    )


def smol_images(spec: TinySpec) -> SmolVLMImageProcessorPil:
    """One tile for an image no larger than the model's."""
    size = {"longest_edge": spec.image_size}
    return SmolVLMImageProcessorPil(size=size, max_image_size=size, image_mean=HALF, image_std=HALF)


def intern_images(spec: TinySpec) -> GotOcr2ImageProcessorPil:
    """Tiles of the model's size, four at most."""
    size = {"height": spec.image_size, "width": spec.image_size}
    return GotOcr2ImageProcessorPil(size=size, max_patches=4, image_mean=HALF, image_std=HALF)


def gemma_images(spec: TinySpec) -> Gemma3ImageProcessorPil:
    """Every image as one square."""
    size = {"height": spec.image_size, "width": spec.image_size}
    return Gemma3ImageProcessorPil(size=size, image_mean=HALF, image_std=HALF)


SHARED: dict[str, Any] = {"load_images": load_images, "encode_images": encode_images, "features": features}
SMOLVLM = Family(
    name="smolvlm",
    types=("smolvlm", "idefics3"),
    end="<end_of_utterance>",
    placeholder="<image>",
    vision=("vision_model", "connector"),
    image_text=smol_text,
    files=smol_files,
    special_tokens=(
        *("<|endoftext|>", "<|im_start|>", "<|im_end|>", "<fake_token_around_image>", "<image>", "<global-img>"),
        *(f"<row_{row}_col_{column}>" for row in range(1, GRID + 1) for column in range(1, GRID + 1)),
        "<end_of_utterance>",
    ),
    roles={"bos_token": "<|im_start|>", "eos_token": "<end_of_utterance>", "pad_token": "<|im_end|>"},
    template=SMOL_TEMPLATE,
    tiny_config=tiny_smol,
    tiny_images=smol_images,
    **SHARED,
)
INTERNVL = Family(
    name="internvl",
    types=("internvl",),
    end="<|im_end|>",
    placeholder="<IMG_CONTEXT>",
    vision=("vision_tower", "multi_modal_projector"),
    image_text=intern_text,
    files=intern_files,
    special_tokens=("<|endoftext|>", "<|im_start|>", "<|im_end|>", "<img>", "</img>", "<IMG_CONTEXT>", "<video>"),
    roles={
        "eos_token": "<|im_end|>",
        "pad_token": "<|endoftext|>",
        "start_image_token": "<img>",
        "end_image_token": "</img>",
        "context_image_token": "<IMG_CONTEXT>",
        "video_token": "<video>",
    },
    template=INTERN_TEMPLATE,
    tiny_config=tiny_intern,
    tiny_images=intern_images,
    **SHARED,
)
GEMMA3 = Family(
    name="gemma3",
    types=("gemma3",),
    end="<end_of_turn>",
    placeholder="<start_of_image>",
    vision=("vision_tower", "multi_modal_projector"),
    image_text=gemma_text,
    files=gemma_files,
    joined_images=True,
    sentencepiece=True,
    special_tokens=(
        *("<pad>", "<eos>", "<bos>", "<unk>", "<start_of_turn>", "<end_of_turn>"),
        *("<start_of_image>", "<end_of_image>", "<image_soft_token>"),
    ),
    roles={
        "bos_token": "<bos>",
        "eos_token": "<eos>",
        "pad_token": "<pad>",
        "unk_token": "<unk>",
        "boi_token": "<start_of_image>",
        "eoi_token": "<end_of_image>",
        "image_token": "<image_soft_token>",
    },
    template=GEMMA_TEMPLATE,
    tiny_config=tiny_gemma,
    tiny_images=gemma_images,
    **SHARED,
)
