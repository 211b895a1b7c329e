"""One row of tokens computed by itself, so that its result is the same whatever batch the row is answered in."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from lookact.models.vlm.policy import ChatVLM
from lookact.rollout.samplers.kv_cache import TurnCache
from lookact.rollout.samplers.padded_decode import extend, left_pad

BLOCK = 16


class SingleSequenceDecoder:
    """The prompt as one block, then sampled tokens in whole blocks that are kept, then the rest, which is not.

    The borders of blocks depend on the tokens alone and not on when they were fed: two streams of the same tokens
    agree to the last bit.
    """

    def __init__(self, chat: ChatVLM, prompt: NDArray[np.int64], pixels: Tensor, grids: Tensor) -> None:
        self.chat = chat
        self._cache = TurnCache()
        self._sampled = 0
        ids, attend = left_pad([prompt], chat.device)
        positions = chat.rope_positions(ids, grids, attend)
        self._start = int(positions.max()) + 1
        self._last = extend(chat, self._cache, attend, ids, positions, pixels, grids)

    def hidden(self, sampled: Sequence[int]) -> Tensor:
        """The last hidden state (1, d) after the prompt and `sampled`, which goes on where the last call ended."""
        if not sampled:
            return self._last
        while len(sampled) - self._sampled > BLOCK:
            self._feed(sampled[self._sampled : self._sampled + BLOCK])
            self._sampled += BLOCK
        rest = sampled[self._sampled :]
        hidden = self._feed(rest)
        self._cache.advance(-len(rest))
        return hidden

    def _feed(self, tokens: Sequence[int]) -> Tensor:
        ids = torch.tensor([list(tokens)], device=self.chat.device)
        first = self._start + self._sampled
        positions = torch.arange(first, first + len(tokens), device=ids.device).expand(3, 1, -1)
        total = self._cache.get_seq_length() + len(tokens)
        return extend(self.chat, self._cache, ids.new_ones(1, total, dtype=torch.bool), ids, positions)
