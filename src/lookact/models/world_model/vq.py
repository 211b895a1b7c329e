"""Visual tokenizer: a residual multi-scale VQ autoencoder (VAR, arXiv:2404.02905, alg. 1 and 2).

A frame is encoded to a small feature map. Each scale quantises, one codebook entry a cell, the residual of the coarser
scales. Codebooks are exponential moving averages of their cells (arXiv:1711.00937, app. A); dead entries are
re-initialised from the batch.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor, nn
from torch.nn import functional

from lookact.errors import ConfigError
from lookact.ops.masked import Metrics

PATCH = 8
"""Pixels of a cell's side."""


@dataclass(frozen=True)
class VQSpec:
    """The shape of an autoencoder."""

    image_size: int = 32
    width: int = 48
    latent: int = 24
    scales: tuple[int, ...] = (1, 2, 4)
    """Cells a side, coarse to fine; the last is the map's own."""
    codes: int = 128
    """Entries of each scale's codebook."""

    @property
    def tokens(self) -> int:
        return sum(side * side for side in self.scales)

    @property
    def grid(self) -> int:
        return self.scales[-1]


class MultiScaleVQ(nn.Module):
    """Ids (b, n) are in [0, codes) within each scale, all cells of a scale in rows, coarse scales first."""

    codebooks: Tensor
    counts: Tensor
    initialised: Tensor

    def __init__(self, spec: VQSpec, *, decay: float = 0.98) -> None:
        super().__init__()
        if spec.grid * PATCH != spec.image_size or list(spec.scales) != sorted(spec.scales):
            raise ConfigError(
                f"scales {spec.scales} do not fit frames of {spec.image_size}: "
                f"give rising sides, the last of them {spec.image_size // PATCH}"
            )
        self.spec, self.decay = spec, decay
        self.encoder, self.decoder = _encoder(spec), _decoder(spec)
        shape = (len(spec.scales), spec.codes, spec.latent)
        self.register_buffer("codebooks", torch.zeros(shape))
        self.register_buffer("counts", torch.ones(shape[:2]))
        self.register_buffer("initialised", torch.zeros((), dtype=torch.bool))

    @torch.no_grad()
    def encode(self, frames: Tensor) -> Tensor:
        """Ids (b, n) of frames (b, h, w, 3) uint8."""
        return self._quantise(self.encoder(normalise_frames(frames)))[1]

    @torch.no_grad()
    def quantise(self, cells: Tensor) -> Tensor:
        """Ids (b, n) of features by cells (b, grid², d)."""
        maps = cells.transpose(1, 2).reshape(len(cells), -1, self.spec.grid, self.spec.grid)
        return self._quantise(maps)[1]

    @torch.no_grad()
    def decode(self, ids: Tensor) -> Tensor:
        """Frames (b, h, w, 3) uint8 of ids (b, n)."""
        return denormalise_frames(self.decoder(self.features(ids)))

    def features(self, ids: Tensor, scales: int | None = None) -> Tensor:
        """The feature map (b, d, grid, grid) of the first `scales` (None: all) scales of ids."""
        sides = self.spec.scales[:scales]
        total = self.codebooks.new_zeros(len(ids), self.spec.latent, self.spec.grid, self.spec.grid)
        for scale, part in enumerate(self.split_scales(ids)[: len(sides)]):
            total = total + self._upsample(self.codebooks[scale][part], sides[scale])
        return total

    def expected(self, probabilities: Tensor) -> Tensor:
        """Expected codebook entry (b, n, d) of each token under probabilities (b, n, codes)."""
        return torch.cat([part @ book for book, part in zip(self.codebooks, self.split_scales(probabilities))], dim=1)

    def coarse_features(self, ids: Tensor, last: int | None = None) -> Tensor:
        """Features (b, n, d) of the coarser scales at each token's cells, up to scale `last`; zeros for the first."""
        parts = [self.codebooks.new_zeros(len(ids), self.spec.scales[0] ** 2, self.spec.latent)]
        for scale, side in enumerate(self.spec.scales[1:], start=1):
            if last is None or scale <= last:
                parts.append(_pool(self.features(ids, scale), side))
        return torch.cat(parts, dim=1)

    def loss(self, frames: Tensor, *, generator: torch.Generator, commitment: float = 0.25) -> tuple[Tensor, Metrics]:
        """Reconstruction and commitment loss of frames (b, h, w, 3) uint8; updates the codebooks."""
        target = normalise_frames(frames)
        latent = self.encoder(target)
        if not self.initialised:
            self._init_codebooks(latent.detach(), generator)
        quantised, _, commit = self._quantise(latent, generator=generator)
        # straight-through: the decoder's gradient reaches the encoder as if nothing had been quantised
        restored = self.decoder(latent + (quantised - latent).detach())
        error = (restored - target).square().mean()
        metrics = {"psnr": psnr_of(error.detach()), "code_perplexity": self.perplexity()}
        return error + commitment * commit, metrics

    def _quantise(self, latent: Tensor, *, generator: torch.Generator | None = None) -> tuple[Tensor, Tensor, Tensor]:
        """Quantised map, ids and commitment loss; with `generator` the codebooks are updated."""
        total, commit, found = torch.zeros_like(latent), latent.new_zeros(()), []
        for scale, side in enumerate(self.spec.scales):
            cells = _pool(latent.detach() - total, side)
            ids = torch.cdist(cells, self.codebooks[scale].expand(len(cells), -1, -1)).argmin(dim=-1)
            if generator is not None:
                self._update_codebook(scale, cells.flatten(0, 1), ids.flatten(), generator)
            total = total + self._upsample(self.codebooks[scale][ids], side)
            commit = commit + (latent - total).square().mean()
            found.append(ids)
        return total, torch.cat(found, dim=1), commit

    def _upsample(self, cells: Tensor, side: int) -> Tensor:
        """Cells (b, side², d) as a map (b, d, grid, grid)."""
        planes = cells.transpose(1, 2).reshape(len(cells), -1, side, side)
        grid = self.spec.grid
        return planes if side == grid else functional.interpolate(planes, size=(grid, grid), mode="bilinear")

    def split_scales(self, ids: Tensor) -> tuple[Tensor, ...]:
        """The tokens of each scale, of any (b, n, ...)."""
        return torch.split(ids, [side * side for side in self.spec.scales], dim=1)

    @torch.no_grad()
    def perplexity(self) -> Tensor:
        """Codebook perplexity: the exponential of the entropy of the entries' use, averaged over scales."""
        shares = self.counts / self.counts.sum(dim=1, keepdim=True)
        return (-torch.xlogy(shares, shares).sum(dim=1)).exp().mean()

    @torch.no_grad()
    def _init_codebooks(self, latent: Tensor, generator: torch.Generator) -> None:
        total = torch.zeros_like(latent)
        for scale, side in enumerate(self.spec.scales):
            cells = _pool(latent - total, side)
            self.codebooks[scale] = _sample_cells(cells.flatten(0, 1), self.spec.codes, generator)
            ids = torch.cdist(cells, self.codebooks[scale].expand(len(cells), -1, -1)).argmin(dim=-1)
            total = total + self._upsample(self.codebooks[scale][ids], side)
            self.counts[scale] = ids.numel() / self.spec.codes
        self.initialised.fill_(True)

    @torch.no_grad()
    def _update_codebook(self, scale: int, cells: Tensor, ids: Tensor, generator: torch.Generator) -> None:
        """EMA of a codebook towards its cells (m, d); dead entries are drawn from cells of this batch."""
        codes = self.spec.codes
        counts = torch.bincount(ids, minlength=codes).to(cells.dtype)
        sums = torch.zeros_like(self.codebooks[scale]).index_add_(0, ids, cells)
        kept = self.decay * self.counts[scale]
        added = (1 - self.decay) * counts
        moved = self.codebooks[scale] * kept[:, None] + (1 - self.decay) * sums
        self.counts[scale] = kept + added
        self.codebooks[scale] = moved / self.counts[scale].clamp(min=1e-6)[:, None]
        dead = self.counts[scale] < 0.02 * len(cells) / codes
        if bool(dead.any()):
            self.codebooks[scale][dead] = _sample_cells(cells, int(dead.sum()), generator)
            self.counts[scale][dead] = len(cells) / codes


def normalise_frames(frames: Tensor) -> Tensor:
    """(b, 3, h, w) in [-1, 1] of frames (b, h, w, 3) uint8."""
    return frames.permute(0, 3, 1, 2).float() / 127.5 - 1.0


def denormalise_frames(planes: Tensor) -> Tensor:
    """(b, h, w, 3) uint8 of planes (b, 3, h, w) in [-1, 1]."""
    return ((planes.clamp(-1, 1) + 1.0) * 127.5).round().to(torch.uint8).permute(0, 2, 3, 1)


def psnr_of(error: Tensor) -> Tensor:
    """Peak signal-to-noise ratio in decibels of mean squared errors of planes, whose range is 2."""
    return 10.0 * torch.log10(4.0 / error.clamp(min=1e-10))


def psnr(first: Tensor, second: Tensor) -> Tensor:
    """Peak signal-to-noise ratio (b,) in decibels between frames (b, h, w, 3) uint8."""
    return psnr_of((normalise_frames(first) - normalise_frames(second)).square().flatten(1).mean(dim=1))


def _pool(planes: Tensor, side: int) -> Tensor:
    """Means over cells (b, side², d) of planes (b, d, grid, grid)."""
    return functional.adaptive_avg_pool2d(planes, side).flatten(2).transpose(1, 2)


def _sample_cells(cells: Tensor, count: int, generator: torch.Generator) -> Tensor:
    chosen = torch.randint(len(cells), (count,), generator=generator).to(cells.device)
    return cells[chosen]


class Residual(nn.Module):
    """x + f(x) with two convolutions; no normalisation, which would lose a frame's brightness."""

    def __init__(self, channels: int) -> None:
        super().__init__()
        self.body = nn.Sequential(
            nn.Conv2d(channels, channels, 3, padding=1), nn.GELU(), nn.Conv2d(channels, channels, 1)
        )

    def forward(self, x: Tensor) -> Tensor:
        added: Tensor = x + self.body(x)
        return added


def _encoder(spec: VQSpec) -> nn.Sequential:
    wide = 2 * spec.width
    return nn.Sequential(
        nn.Conv2d(3, spec.width, 4, stride=4),
        nn.GELU(),
        Residual(spec.width),
        nn.Conv2d(spec.width, wide, 2, stride=2),
        nn.GELU(),
        Residual(wide),
        nn.Conv2d(wide, spec.latent, 1),
    )


def _decoder(spec: VQSpec) -> nn.Sequential:
    wide = 2 * spec.width
    return nn.Sequential(
        nn.Conv2d(spec.latent, wide, 1),
        nn.GELU(),
        Residual(wide),
        nn.ConvTranspose2d(wide, spec.width, 2, stride=2),
        nn.GELU(),
        Residual(spec.width),
        nn.Conv2d(spec.width, 3 * 16, 1),
        nn.PixelShuffle(4),
    )
