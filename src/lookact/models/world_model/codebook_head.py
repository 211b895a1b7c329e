"""How a world model speaks of the next frame: which entry of a codebook each token will be.

What stands at a token's cells now, less what the coarser scales of the next frame already tell, is what the token
would have to say if nothing moved. Heads say by how much to correct that, and how sure they are: an entry is the less
likely, the farther it lies from there and the more seldom it is used at all. Entries that look alike are thus learned
together; what tells them apart all the same, each head adds entry by entry.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor, nn
from torch.nn import functional

from lookact.models.sac import EnsembleMLP

NEIGHBOURS = 9
SHARPEST = 4.0
"""Largest logarithm of how fast likelihood falls with the distance."""


class Foresight(nn.Module):
    """Hidden states (n, tokens, width) to logits (members, n, tokens, codes)."""

    def __init__(self, members: int, width: int, latent: int, codes: int, generator: torch.Generator) -> None:
        super().__init__()
        self.latent = latent
        self.heads = EnsembleMLP(members, (width, width, latent + 1 + codes), generator)

    def forward(self, hidden: Tensor, still: Tensor, codebooks: Tensor, usage: Tensor, scales: Sequence[int]) -> Tensor:
        """still: (n, tokens, latent) what the tokens would say if nothing moved; codebooks: (scales, codes, latent).

        usage: (scales, codes) how often each entry is used, in any unit.
        """
        told = self.heads(hidden.flatten(0, 1))
        told = told.reshape(len(told), *hidden.shape[:2], -1)
        sizes = [side * side for side in scales]
        parts = zip(torch.split(told, sizes, dim=2), torch.split(still, sizes, dim=1), codebooks)
        # of entries that are alike, only the one that is used may be likely
        known = usage.clamp(min=1e-6).log()
        return torch.cat([self._likeness(*part) + prior for part, prior in zip(parts, known)], dim=2)

    def _likeness(self, told: Tensor, still: Tensor, codebook: Tensor) -> Tensor:
        """Minus squared distances to entries, up to what all entries have in common, and what is added."""
        unit = codebook.square().mean().clamp(min=1e-8).sqrt()
        entries = codebook / unit
        change, sharpness, extra = torch.split(told, [self.latent, 1, len(codebook)], dim=-1)
        aim = still / unit + change
        sharpness = sharpness.clamp(-SHARPEST, SHARPEST).exp()
        # expanded by hand: cdist would build every distance vector
        near = sharpness * (2.0 * aim @ entries.mT - entries.square().sum(dim=1)) / self.latent
        return near + extra


def surroundings(cells: Tensor, scales: Sequence[int]) -> Tensor:
    """What stands at and around each token's place (n, tokens, 9, d), the middle its own, of cells (n, grid², d)."""
    grid = scales[-1]
    planes = cells.transpose(1, 2).reshape(len(cells), -1, grid, grid)
    found = []
    for side in scales:
        pooled = functional.adaptive_avg_pool2d(planes, side)
        padded = functional.pad(pooled, (1, 1, 1, 1), mode="replicate")
        blocks = functional.unfold(padded, 3).reshape(len(cells), -1, NEIGHBOURS, side * side)
        found.append(blocks.permute(0, 3, 2, 1))
    return torch.cat(found, dim=1)
