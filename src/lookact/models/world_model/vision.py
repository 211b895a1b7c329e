"""A frozen pretrained vision encoder for the understanding expert: SigLIP or DINOv2, by name or folder.

It is shown the frames that the tokenizer's features decode to, for those are all that the world model has: of recorded,
acted and imagined frames alike.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional
from transformers import AutoConfig, Dinov2Model, SiglipVisionModel

from lookact.errors import ConfigError, DataError
from lookact.models.vla.encoders import DEVIATION, MEAN
from lookact.models.vlm.loading import first_line

NONE = "none"
"""The source of a world model without one: its own projection of the tokenizer's features."""
SIGLIP = ("siglip", "siglip_vision_model")
DINOV2 = "dinov2"
LARGEST = 224
"""Pixels a side that frames are brought to, at most: DINOv2's own 518 are 1369 patches."""


class PretrainedVision(nn.Module):
    """Planes (n, 3, h, w) in [-1, 1] to features (n, side², d), the means of the patches that fall into each cell."""

    colours: Tensor

    def __init__(self, encoder: Any, side: int) -> None:
        super().__init__()
        self.encoder, self.side = encoder.requires_grad_(False).eval(), side
        config = encoder.config
        self.width, self.patch = int(config.hidden_size), int(config.patch_size)
        self.is_dinov2 = config.model_type == DINOV2
        self.size = int(config.image_size)
        if self.is_dinov2:
            # its position embeddings are interpolated, SigLIP's are not
            self.size = min(self.size, LARGEST) // self.patch * self.patch
        colours = torch.tensor([MEAN, DEVIATION] if self.is_dinov2 else [[0.5] * 3] * 2)
        self.register_buffer("colours", colours, persistent=False)

    @torch.no_grad()
    def forward(self, planes: Tensor) -> Tensor:
        mean, deviation = self.colours.view(2, 1, 3, 1, 1)
        pixels = ((planes.clamp(-1, 1) + 1) / 2 - mean) / deviation
        size = (self.size, self.size)
        if pixels.shape[-2:] != size:
            pixels = functional.interpolate(pixels, size, mode="bicubic", antialias=True, align_corners=False)
        states = self.encoder(pixel_values=pixels).last_hidden_state[:, int(self.is_dinov2) :]
        grid = self.size // self.patch
        maps = states.transpose(1, 2).reshape(len(planes), self.width, grid, grid)
        return functional.adaptive_avg_pool2d(maps, self.side).flatten(2).transpose(1, 2)

    def train(self, mode: bool = True) -> PretrainedVision:
        """It stays as it is."""
        return self


def open_vision(source: str, side: int) -> PretrainedVision | None:
    """The encoder that `source` names, None for 'none'; `side` are the cells a side of its features."""
    if source == NONE:
        return None
    try:
        kind = AutoConfig.from_pretrained(source, trust_remote_code=False).model_type
        if kind not in (*SIGLIP, DINOV2):
            raise ConfigError(f"{source} is a {kind} model: choose a SigLIP or DINOv2 checkpoint")
        make: Any = Dinov2Model if kind == DINOV2 else SiglipVisionModel
        return PretrainedVision(make.from_pretrained(source, dtype=torch.float32), side)
    except (OSError, ValueError, KeyError) as error:
        where = "" if Path(source).exists() else "; give 'none', a folder that exists, or a name on the Hub"
        raise DataError(f"cannot load {source}: {first_line(error)}{where}") from error
