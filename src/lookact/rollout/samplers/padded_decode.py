"""Token streams of many rows that grow column by column, padded on the left so that all rows end together."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from lookact.rollout.samplers.kv_cache import TurnCache

if TYPE_CHECKING:
    from lookact.models.vlm.policy import ChatVLM


def left_pad(blocks: Sequence[NDArray[np.int64]], device: torch.device) -> tuple[Tensor, Tensor]:
    """Ids (b, n) of ragged blocks, zeros before the shorter ones, and where they are real (b, n)."""
    width = max(len(block) for block in blocks)
    ids = torch.zeros(len(blocks), width, dtype=torch.long)
    real = torch.zeros(len(blocks), width, dtype=torch.bool)
    for i, block in enumerate(blocks):
        ids[i, width - len(block) :] = torch.from_numpy(block)
        real[i, width - len(block) :] = True
    return ids.to(device), real.to(device)


def extend(
    chat: ChatVLM,
    cache: TurnCache,
    attend: Tensor,
    ids: Tensor,
    positions: Tensor,
    pixels: Tensor | None = None,
    grids: Tensor | None = None,
) -> Tensor:
    """Feeds new columns (b, n) and returns the last one's hidden state (b, d).

    `attend` (b, past + n) is True on real tokens, the new columns included; `positions` (3, b, n) are rotary.
    """
    b, n = ids.shape
    past = attend.shape[1] - n
    visible = attend[:, None, None, :]
    if n > 1:
        query = torch.arange(past, past + n, device=ids.device)[:, None]
        key = torch.arange(past + n, device=ids.device)[None, :]
        # padding looks at itself, since a row of nothing but masked keys would give NaN
        visible = (visible & (key <= query)) | (key == query)
    # the last layer need not run where nobody reads its output
    last = torch.full((b, 1), n - 1, device=ids.device)
    hidden = chat.backbone(ids, visible, positions, () if pixels is None else pixels, grids, cache=cache, keep=last)
    cache.advance(n)
    return hidden[:, -1]
