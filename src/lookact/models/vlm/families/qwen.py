"""Qwen3-VL, its mixture of experts, and Qwen2.5-VL: patches of any number, multimodal RoPE, images as they are cut."""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Sequence
from itertools import groupby
from typing import Any

import numpy as np
import torch
from torch import Tensor
from transformers import Qwen2_5_VLConfig, Qwen3VLConfig, Qwen3VLMoeConfig
from transformers.image_utils import SizeDict
from transformers.models.qwen2_vl.image_processing_pil_qwen2_vl import Qwen2VLImageProcessorPil

from lookact.errors import ConfigError, DataError
from lookact.models.vlm.families.family import FRAMES, HEAD, MERGE, PATCH, Family, Run, TinySpec, text_sizes
from lookact.models.vlm.kernels import vision_features
from lookact.text.chat import CHAT_TEMPLATE, SPECIAL_TOKENS
from lookact.types import Image

PAD = "<|image_pad|>"
SYSTEM = """\
{%- if messages[0].role != 'system' -%}
    {{- '<|im_start|>system\\nYou are a helpful assistant.<|im_end|>\\n' -}}
{%- endif -%}
"""
"""What Qwen2.5-VL's template says where nobody gave it a system message."""


def load_images(base: str, min_pixels: int | None, max_pixels: int | None) -> Any:
    """The checkpoint's image processor with its pixel budget set and checked."""
    processor = Qwen2VLImageProcessorPil.from_pretrained(base)
    low, high = pixel_budget(processor)
    wanted = (low if min_pixels is None else min_pixels, high if max_pixels is None else max_pixels)
    if not 0 < wanted[0] <= wanted[1]:
        raise ConfigError(f"min_pixels {wanted[0]} and max_pixels {wanted[1]}: the first must not exceed the second")
    # from_pretrained(max_pixels=...) is silently ignored: only `size` counts
    processor.size = {"shortest_edge": wanted[0], "longest_edge": wanted[1]}
    side = math.isqrt(4 * wanted[1])
    patches = processor.get_number_of_image_patches(side, side, {})
    if pixel_budget(processor) != wanted or patches * processor.patch_size**2 > wanted[1]:
        raise ConfigError(
            f"the image processor of {base} ignores the pixel budget {wanted}: it is {pixel_budget(processor)}"
        )
    return processor


def image_text(config: Any, processor: Any, height: int, width: int) -> str:
    """One pad token for each cell of merged patches."""
    _, grids = encode_images(processor, [np.zeros((height, width, 3), dtype=np.uint8)])
    return PAD * int(grids.prod() // config.vision_config.spatial_merge_size**2)


def features(core: Any, pixels: Sequence[Tensor], grids: Tensor, run: Run) -> tuple[Tensor, list[Tensor]]:
    """Qwen3-VL's vision tower with its deepstack levels."""
    return vision_features(core.visual, pixels, grids, run)


def windowed_features(core: Any, pixels: Sequence[Tensor], grids: Tensor, run: Run) -> tuple[Tensor, list[Tensor]]:
    """Qwen2.5-VL's vision tower: attention within windows, no levels."""
    weight = core.visual.patch_embed.proj.weight
    joined = torch.cat(list(pixels)).to(weight.device, weight.dtype)
    output = run(lambda patches: core.visual(patches, grid_thw=grids.to(weight.device)), joined)
    return output.pooler_output, []


def files(config: Any, processor: Any) -> dict[str, dict[str, Any]]:
    """The image processor's settings, and beside them the video processor's that other engines insist on."""
    old = config.model_type == "qwen2_5_vl"
    settings = json.loads(processor.to_json_string())
    settings |= {"image_processor_type": "Qwen2VLImageProcessorFast"}
    settings |= {"processor_class": "Qwen2_5_VLProcessor" if old else "Qwen3VLProcessor"}
    shared = ("size", "patch_size", "temporal_patch_size", "merge_size", "image_mean", "image_std")
    video = {key: settings[key] for key in shared}
    video |= {"video_processor_type": "Qwen2VLVideoProcessor" if old else "Qwen3VLVideoProcessor"}
    return {"preprocessor_config.json": settings, "video_preprocessor_config.json": video}


def rope_positions(ids: Tensor, grids: Tensor, attend: Tensor, *, image_pad: int, merge: int) -> Tensor:
    """Multimodal RoPE positions (3, b, n) of tokens (b, n): time, height, width; equal to the stock `get_rope_index`.

    Text advances all three axes by one a token. An image's tokens share their time and spread over height and
    width; the text after it goes on past its longer side. Padding stands at 0.
    """
    grids = grids.to(ids.device)
    image = (ids == image_pad) & attend
    spots = image.flatten().nonzero().squeeze(1)
    steps = (attend & ~image).long()
    if len(grids):
        owner, place = image_token_places(grids, merge, len(spots))
        # the text after an image continues from its longer side
        last = torch.cat([owner[1:] != owner[:-1], owner.new_ones(1, dtype=torch.bool)])
        longest = grids[:, 1:].amax(dim=1) // merge
        steps.view(-1)[spots[last]] = longest[owner[last]]
    elif len(spots):
        raise DataError(f"{len(spots)} image tokens but no image: pass the pixels and grids of every image")
    base = steps.cumsum(dim=1) - steps
    positions = torch.where(attend, base, 0).expand(3, -1, -1).clone()
    if len(grids):
        positions.view(3, -1)[1:, spots] += place
    return positions


def image_token_places(grids: Tensor, merge: int, tokens: int) -> tuple[Tensor, Tensor]:
    """For each image token its image (m,) and its row and column in it (2, m)."""
    counts = grids.prod(dim=1) // merge**2
    if int(counts.sum()) != tokens:
        raise DataError(f"{tokens} image tokens but {int(counts.sum())} image features: text and images do not match")
    owner = torch.repeat_interleave(torch.arange(len(grids), device=grids.device), counts)
    offset = torch.arange(tokens, device=grids.device) - (counts.cumsum(0) - counts)[owner]
    columns = grids[owner, 2] // merge
    rows = grids[owner, 1] // merge
    return owner, torch.stack([offset // columns % rows, offset % columns])


def encode_images(processor: Any, images: Sequence[Image]) -> tuple[Tensor, Tensor]:
    """RGB images (h, w, 3) to patches (patches, d) and grids (k, 3), batched where no resize is needed."""
    if not images:
        width = 3 * processor.temporal_patch_size * processor.patch_size**2
        return torch.zeros(0, width), torch.zeros(0, 3, dtype=torch.long)
    pixels, grids = [], []
    for shape, run in groupby(images, key=np.shape):
        encode = patchify if fits(processor, *shape[:2]) else process
        run_pixels, run_grids = encode(processor, list(run))
        pixels.append(run_pixels)
        grids.append(run_grids)
    return torch.cat(pixels), torch.cat(grids)


def fits(processor: Any, height: int, width: int) -> bool:
    """Whether an image goes in as it is: whole 32x32 cells, within the pixel budget."""
    cell = processor.patch_size * processor.merge_size
    low, high = pixel_budget(processor)
    return height % cell == 0 and width % cell == 0 and low <= height * width <= high


def fit_image(processor: Any, image: Image) -> Image:
    """The image as the processor resizes it, still bytes: whoever encodes it next has nothing left to resize."""
    if fits(processor, *image.shape[:2]):
        return image
    cell = processor.patch_size * processor.merge_size
    size = SizeDict(**dict(processor.size))
    resized = processor.resize(np.moveaxis(image, -1, 0), size=size, resample=processor.resample, factor=cell)
    return np.ascontiguousarray(np.moveaxis(resized, 0, -1))


def pixel_budget(processor: Any) -> tuple[int, int]:
    """The fewest and the most pixels an image has after the resize."""
    return int(processor.size["shortest_edge"]), int(processor.size["longest_edge"])


def process(processor: Any, images: list[Image]) -> tuple[Tensor, Tensor]:
    """The stock processor, which resizes: milliseconds an image."""
    # said outright: of an image 1 or 3 pixels high the processor would guess wrong
    encoded = processor(images=images, input_data_format="channels_last", return_tensors="pt")
    return encoded["pixel_values"], encoded["image_grid_thw"]


def patchify(processor: Any, images: list[Image]) -> tuple[Tensor, Tensor]:
    """Normalise and cut same-sized images (k of them) that need no resize, all at once."""
    patch, merge, frames = processor.patch_size, processor.merge_size, processor.temporal_patch_size
    scale, shift = normaliser(processor)
    batch = torch.from_numpy(np.stack(images)).float() * scale + shift
    count, height, width, _ = batch.shape
    rows, columns = height // patch, width // patch
    cells = batch.view(count, rows // merge, merge, patch, columns // merge, merge, patch, 3)
    # (image, cell row, cell column, row in cell, column in cell, channel, y, x), as the vision tower merges them
    cells = cells.permute(0, 1, 4, 2, 5, 7, 3, 6).unsqueeze(6)
    # a still image is a video of `frames` equal frames
    pixels = cells.expand(-1, -1, -1, -1, -1, -1, frames, -1, -1).reshape(count * rows * columns, -1)
    return pixels, torch.tensor([[1, rows, columns]]).expand(count, 3).contiguous()


def normaliser(processor: Any) -> tuple[Tensor, Tensor]:
    """Scale (3,) and shift (3,) that take bytes to what the model expects."""
    deviation = torch.tensor(processor.image_std, dtype=torch.float64)
    scale = processor.rescale_factor / deviation
    shift = -torch.tensor(processor.image_mean, dtype=torch.float64) / deviation
    return scale.float(), shift.float()


def tiny_images(spec: TinySpec) -> Qwen2VLImageProcessorPil:
    """The image processor with a pixel budget of the largest image."""
    half = [0.5, 0.5, 0.5]
    return Qwen2VLImageProcessorPil(
        size={"shortest_edge": (PATCH * MERGE) ** 2, "longest_edge": spec.image_size**2},
        patch_size=PATCH,
        temporal_patch_size=FRAMES,
        merge_size=MERGE,
        image_mean=half,
        image_std=half,
    )


def vision_sizes(spec: TinySpec) -> dict[str, Any]:
    """The vision tower's sizes that both generations share."""
    return {
        "depth": spec.vision_depth,
        "hidden_size": spec.vision_hidden,
        "intermediate_size": 2 * spec.vision_hidden,
        "num_heads": max(1, spec.vision_hidden // HEAD),
        "patch_size": PATCH,
        "spatial_merge_size": MERGE,
        "temporal_patch_size": FRAMES,
        "out_hidden_size": spec.hidden,
    }


def settings(token: Callable[[str], int]) -> dict[str, Any]:
    """What the configurations of all three have beside their two parts."""
    return {
        "image_token_id": token(PAD),
        "video_token_id": token("<|video_pad|>"),
        "vision_start_token_id": token("<|vision_start|>"),
        "vision_end_token_id": token("<|vision_end|>"),
        "tie_word_embeddings": True,
        "dtype": "float32",
    }


def tiny_qwen3(
    token: Callable[[str], int], vocabulary: int, spec: TinySpec, *, kind: Any = Qwen3VLConfig, **more: Any
) -> Any:
    """Qwen3-VL's configuration at the sizes of `spec`."""
    rope = {"rope_type": "default", "rope_theta": 1e4, "mrope_section": [6, 5, 5], "mrope_interleaved": True}
    vision = vision_sizes(spec) | {
        # one learned position per patch of the largest image: nothing to interpolate there
        "num_position_embeddings": (spec.image_size // PATCH) ** 2,
        "deepstack_visual_indexes": [0],
    }
    text = text_sizes(spec, vocabulary) | {"rope_parameters": rope} | more
    return kind(text_config=text, vision_config=vision, **settings(token))


def tiny_moe(token: Callable[[str], int], vocabulary: int, spec: TinySpec) -> Any:
    """Four experts, two a token, in every layer."""
    experts = {"num_experts": 4, "num_experts_per_tok": 2, "moe_intermediate_size": spec.hidden, "mlp_only_layers": []}
    return tiny_qwen3(token, vocabulary, spec, kind=Qwen3VLMoeConfig, **experts, decoder_sparse_step=1)


def tiny_qwen25(token: Callable[[str], int], vocabulary: int, spec: TinySpec) -> Qwen2_5_VLConfig:
    """Qwen2.5-VL's configuration at the sizes of `spec`: windows of four cells, the last layer over all."""
    vision = vision_sizes(spec) | {"window_size": 4 * PATCH, "fullatt_block_indexes": [spec.vision_depth - 1]}
    # its heads share the width: no size of their own
    heads = {"num_attention_heads": spec.hidden // HEAD, "num_key_value_heads": max(1, spec.hidden // HEAD // 2)}
    rope = {"rope_type": "default", "rope_theta": 1e4, "mrope_section": [6, 5, 5]}
    ends = {"bos_token_id": None, "eos_token_id": token("<|im_end|>")}
    text = text_sizes(spec, vocabulary) | heads | ends | {"rope_parameters": rope}
    return Qwen2_5_VLConfig(text_config=text, vision_config=vision, **settings(token))


def _family(name: str, types: tuple[str, ...], see: Any, config: Any, template: str = CHAT_TEMPLATE) -> Family:
    return Family(
        name=name,
        types=types,
        end="<|im_end|>",
        placeholder=PAD,
        vision=("visual",),
        load_images=load_images,
        encode_images=encode_images,
        image_text=image_text,
        features=see,
        files=files,
        mrope=True,
        special_tokens=SPECIAL_TOKENS,
        roles={"eos_token": "<|im_end|>", "pad_token": "<|endoftext|>"},
        template=template,
        tiny_config=config,
        tiny_images=tiny_images,
    )


QWEN3_VL = _family("qwen3-vl", ("qwen3_vl",), features, tiny_qwen3)
QWEN3_VL_MOE = _family("qwen3-vl-moe", ("qwen3_vl_moe",), features, tiny_moe)
QWEN25_VL = _family("qwen2.5-vl", ("qwen2_5_vl",), windowed_features, tiny_qwen25, SYSTEM + CHAT_TEMPLATE)
