"""How a control policy sees: DINOv2 over the frames of each camera, then a few learned glances at its patches.

A glance is attention with a query of its own: it gives what it found and where in the picture, so that hundreds of
patches become a handful of tokens, cheap to keep and to fuse.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional

from lookact.errors import ConfigError
from lookact.models.vla.encoders import Hold, Weights, initialise
from lookact.models.vla.folded_dinov2 import FoldedDinov2, foldable
from lookact.seeding import torch_rng

MEAN, DEVIATION = (0.485, 0.456, 0.406), (0.229, 0.224, 0.225)
"""Of colours in 0..1, as DINOv2 was trained with."""


@dataclass(frozen=True)
class VisionSpec:
    """The image encoder; sizes are the tiny one's."""

    source: str = "tiny"
    image_size: int = 64
    """Pixels a side that frames are brought to; for a pretrained DINOv2 a multiple of 14."""
    patch: int = 8
    hidden: int = 64
    layers: int = 2
    glances: int = 8
    """Tokens a camera."""
    hold: Hold = "full"
    lora_rank: int = 8


class AttentionPool(nn.Module):
    """(b, p, d) patches -> (b, k, d + 2): what each of k queries found, and where, in -1..1 across and down."""

    grid: Tensor

    def __init__(self, width: int, count: int, side: int) -> None:
        super().__init__()
        self.queries = nn.Parameter(torch.zeros(count, width))
        self.keys, self.values = nn.Linear(width, width), nn.Linear(width, width)
        line = (torch.arange(side) + 0.5) / side * 2 - 1
        down, across = torch.meshgrid(line, line, indexing="ij")
        self.register_buffer("grid", torch.stack([across, down], dim=-1).reshape(-1, 2), persistent=False)

    def forward(self, patches: Tensor) -> Tensor:
        # keys and values of a few queries, not of hundreds of patches: the same products in another order
        queries = self.queries / patches.shape[-1] ** 0.5
        asked, shift = queries @ self.keys.weight, queries @ self.keys.bias
        # bmm, since matmul rounds otherwise where a gradient is wanted
        scores = torch.bmm(asked.expand(len(patches), -1, -1), patches.mT) + shift.unsqueeze(-1)
        weights = scores.softmax(dim=-1)
        return torch.cat([self.values(weights @ patches), weights @ self.grid], dim=-1)


class VisionEncoder(nn.Module):
    """One encoder for all cameras, glances of its own for each."""

    colours: Tensor

    def __init__(self, spec: VisionSpec, encoder: Any, cameras: tuple[str, ...], *, seed: int) -> None:
        super().__init__()
        self.spec, self.cameras, self.encoder = spec, cameras, encoder
        self.width, patch = int(encoder.config.hidden_size), int(encoder.config.patch_size)
        side, rest = divmod(spec.image_size, patch)
        if rest:
            raise ConfigError(
                f"an image of {spec.image_size} pixels does not fall into patches of {patch}: choose a multiple"
            )
        self.glances = nn.ModuleDict({camera: AttentionPool(self.width, spec.glances, side) for camera in cameras})
        generator = torch_rng(seed, "glances")
        initialise(self.glances, generator)
        for glance in self.glances.values():
            assert isinstance(glance, AttentionPool)
            nn.init.normal_(glance.queries, std=2.0, generator=generator)
        self.register_buffer("colours", torch.tensor([MEAN, DEVIATION]), persistent=False)
        self._weights, self._glance_weights = Weights(encoder), Weights(self.glances)
        self._sight: FoldedDinov2 | None = None
        self._sight_of: Any = None

    @property
    def frozen(self) -> bool:
        """Whether nothing of the encoder learns: what it gives of a frame never changes."""
        return self._weights.frozen

    @property
    def glances_frozen(self) -> bool:
        return self._glance_weights.frozen

    def features(self, images: Mapping[str, Tensor]) -> dict[str, Tensor]:
        """Camera to (b, h, w, 3) uint8 frames -> (b, k, d) what learning leaves as it is: patches, or glances."""
        patches = self._patches(images)
        if self.frozen and self.glances_frozen:
            return {camera: self.glances[camera](found) for camera, found in patches.items()}
        return patches

    def forward(self, images: Mapping[str, Tensor]) -> dict[str, Tensor]:
        """Frames (b, h, w, 3), or what `features` made of them -> (b, glances, d + 2) a camera."""
        frames = {camera: images[camera] for camera in self.cameras if images[camera].dtype == torch.uint8}
        found = {camera: images[camera] for camera in self.cameras if camera not in frames} | self._patches(frames)
        return {
            camera: tokens if tokens.shape[-1] == self.width + 2 else self.glances[camera](tokens)
            for camera, tokens in ((camera, found[camera]) for camera in self.cameras)
        }

    def _patches(self, images: Mapping[str, Tensor]) -> dict[str, Tensor]:
        """(b, p, d) a camera; all go through the encoder together."""
        if not images:
            return {}
        frames, size = list(images.values()), self.spec.image_size
        sight = self._folded() if all(each.shape[1:3] == (size, size) for each in frames) and self.frozen else None
        if sight is not None:
            states = sight(torch.cat(frames))
        else:
            pixels = torch.cat([self._prepare(each) for each in frames])
            states = self.encoder(pixel_values=pixels).last_hidden_state[:, 1:]
        return dict(zip(images, states.chunk(len(images))))

    def _folded(self) -> FoldedDinov2 | None:
        """The encoder on raw frames, folded anew whenever a weight has changed; None: of a kind that does not fold."""
        state = self._weights.state()
        if state != self._sight_of:
            known = foldable(self.encoder)
            self._sight = FoldedDinov2(self.encoder, self.colours, self.spec.image_size) if known else None
            self._sight_of = state
        return self._sight

    def _prepare(self, frames: Tensor) -> Tensor:
        """(b, h, w, 3) uint8 -> (b, 3, s, s) colours as DINOv2 knows them."""
        mean, deviation = self.colours
        pixels: Tensor = ((frames.float() / 255 - mean) / deviation).permute(0, 3, 1, 2)
        size = (self.spec.image_size, self.spec.image_size)
        if pixels.shape[-2:] == size:
            return pixels
        pixels = functional.interpolate(pixels, size, mode="bicubic", antialias=True, align_corners=False)
        return pixels
