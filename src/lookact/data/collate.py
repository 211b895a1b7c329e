"""Segments to padded tensors."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from lookact.batch import Batch, TokenInputs
from lookact.data.segments import Segment
from lookact.types import Image

Encoder = Callable[[Sequence[Image]], tuple[Tensor, Tensor]]
"""Images to (patches, d) pixels and (images, 3) grids."""


def collate(segments: Sequence[Segment], encode_images: Encoder, *, pad_id: int = 0) -> Batch[TokenInputs]:
    """A right-padded batch; every image of the batch is encoded in one call."""
    ids = _pad([segment.ids for segment in segments], pad_id)
    lengths = torch.tensor([len(segment.ids) for segment in segments])
    pixels, grids = _split(encode_images([image for s in segments for image in s.images]), segments)
    return Batch(
        inputs=TokenInputs(
            ids=ids,
            attend=torch.arange(ids.shape[1])[None] < lengths[:, None],
            positions=_pad([segment.positions for segment in segments], 0),
            pixels=pixels,
            grids=grids,
        ),
        mask=_pad([segment.mask for segment in segments], False),
        logprobs=_pad([segment.logprobs for segment in segments], 0.0),
        turns=_pad([segment.turns for segment in segments], -1),
        rewards=_pad([segment.rewards for segment in segments], 0.0),
        returns=torch.tensor([segment.episode_return for segment in segments]),
        groups=torch.tensor([segment.group for segment in segments]),
        terminated=torch.tensor([segment.terminated for segment in segments]),
        advantages=_pad([segment.advantages for segment in segments], 0.0),
    )


def _pad(rows: Sequence[NDArray[np.generic]], value: float | bool) -> Tensor:
    padded = np.full((len(rows), max(len(row) for row in rows)), value, dtype=rows[0].dtype)
    for i, row in enumerate(rows):
        padded[i, : len(row)] = row
    return torch.from_numpy(padded)


def _split(
    encoded: tuple[Tensor, Tensor], segments: Sequence[Segment]
) -> tuple[tuple[Tensor, ...], tuple[Tensor, ...]]:
    """Every row's own pixels and grids."""
    pixels, grids = encoded
    grids_by_row = torch.split(grids, [len(segment.images) for segment in segments])
    patches = [int(rows.prod(dim=1).sum()) for rows in grids_by_row]
    return torch.split(pixels, patches), grids_by_row
