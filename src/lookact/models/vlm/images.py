"""Images to patches the way Qwen3-VL's processor does it, whole batches at a time where no resize is needed."""

from __future__ import annotations

import json
from collections.abc import Sequence
from itertools import groupby
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor
from transformers.image_utils import SizeDict

from lookact.types import Image


def encode_images(processor: Any, images: Sequence[Image]) -> tuple[Tensor, Tensor]:
    """RGB images (h, w, 3) to pixels (patches, d) and grids (k, 3), in order."""
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
    # a still picture is a film of `frames` equal frames
    pixels = cells.expand(-1, -1, -1, -1, -1, -1, frames, -1, -1).reshape(count * rows * columns, -1)
    return pixels, torch.tensor([[1, rows, columns]]).expand(count, 3).contiguous()


def normaliser(processor: Any) -> tuple[Tensor, Tensor]:
    """Scale (3,) and shift (3,) that take bytes to what the model expects."""
    deviation = torch.tensor(processor.image_std, dtype=torch.float64)
    scale = processor.rescale_factor / deviation
    shift = -torch.tensor(processor.image_mean, dtype=torch.float64) / deviation
    return scale.float(), shift.float()


def save_processor(processor: Any, folder: Path) -> None:
    """Write the image processor's settings, and beside them the video processor's that other engines insist on."""
    settings = json.loads(processor.to_json_string())
    settings |= {"image_processor_type": "Qwen2VLImageProcessorFast", "processor_class": "Qwen3VLProcessor"}
    shared = ("size", "patch_size", "temporal_patch_size", "merge_size", "image_mean", "image_std")
    video = {key: settings[key] for key in shared} | {"video_processor_type": "Qwen3VLVideoProcessor"}
    files = {"preprocessor_config.json": settings, "video_preprocessor_config.json": video}
    for name, content in files.items():
        (folder / name).write_text(json.dumps(content, indent=2) + "\n")
