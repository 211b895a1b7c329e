"""Where every token stands for Qwen3-VL's rotary embedding: one axis of time, two of space."""

from __future__ import annotations

import torch
from torch import Tensor

from lookact.errors import DataError


def rope_positions(ids: Tensor, grids: Tensor, attend: Tensor, *, image_pad: int, merge: int) -> Tensor:
    """Positions (3, b, n) of tokens (b, n), equal to `get_rope_index` but without its loop over rows and images.

    Text walks all three axes by one a token. An image's tokens share their time and spread over height and
    width; the text after it goes on past its longer side. Padding stands at 0.
    """
    image = (ids == image_pad) & attend
    spots = image.flatten().nonzero().squeeze(1)
    steps = (attend & ~image).long()
    if len(grids):
        owner, place = spread(grids, merge, len(spots))
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


def spread(grids: Tensor, merge: int, tokens: int) -> tuple[Tensor, Tensor]:
    """For each image token its image (m,) and its row and column in it (2, m)."""
    counts = grids.prod(dim=1) // merge**2
    if int(counts.sum()) != tokens:
        raise DataError(f"{tokens} image tokens but {int(counts.sum())} image features: text and images do not match")
    owner = torch.repeat_interleave(torch.arange(len(grids), device=grids.device), counts)
    offset = torch.arange(tokens, device=grids.device) - (counts.cumsum(0) - counts)[owner]
    columns = grids[owner, 2] // merge
    rows = grids[owner, 1] // merge
    return owner, torch.stack([offset // columns % rows, offset % columns])
