"""All units of a step, one row an episode: where credit is worked out, before it goes back to micro-batches.

An episode whose context was rebuilt is several segments, in several micro-batches; its rewards belong together.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from lookact.batch import Batch, TokenInputs, to_device
from lookact.data.collate import Encoder, collate
from lookact.data.segments import Segment, buckets

PADDING = -1


@dataclass(frozen=True)
class Chunk:
    """Some of a step's segments as a micro-batch."""

    numbers: tuple[int, ...]
    """Which segment each row is."""
    batch: Batch[TokenInputs]


@dataclass(frozen=True)
class Layout:
    """Where each segment's units stand among those of its episode."""

    rows: tuple[int, ...]
    """A segment's episode."""
    starts: tuple[int, ...]
    """Units of the episode before it."""
    turns: tuple[int, ...]
    """Turns of the episode before it."""
    lengths: tuple[int, ...]

    @property
    def shape(self) -> tuple[int, int]:
        """Episodes, and the units of the longest."""
        ends = (start + length for start, length in zip(self.starts, self.lengths))
        return max(self.rows, default=-1) + 1, max(ends, default=0)

    def gather(self, chunks: Sequence[Chunk], tensors: Sequence[Tensor], *, fill: float = 0.0) -> Tensor:
        """Units (b, u) of each chunk as one (episodes, units), on the CPU; `fill` where there is no unit."""
        dtype = tensors[0].dtype if tensors else torch.float32
        joined = torch.full(self.shape, fill, dtype=dtype)
        for chunk, tensor in zip(chunks, tensors):
            for row, number in enumerate(chunk.numbers):
                joined[self.rows[number], self._span(number)] = tensor[row, : self.lengths[number]].cpu()
        return joined

    def gather_turns(self, chunks: Sequence[Chunk]) -> Tensor:
        """(episodes, units) each unit's turn in its episode, -1 on padding."""
        ahead = [torch.tensor([self.turns[number] for number in chunk.numbers])[:, None] for chunk in chunks]
        counted = [chunk.batch.turns.cpu() + before for chunk, before in zip(chunks, ahead)]
        return self.gather(chunks, counted, fill=PADDING)

    def scatter(self, joined: Tensor, chunk: Chunk) -> Tensor:
        """A chunk's part (b, u) of (episodes, units), on the chunk's device; 0 on padding."""
        part = torch.zeros(chunk.batch.mask.shape, dtype=joined.dtype)
        for row, number in enumerate(chunk.numbers):
            part[row, : self.lengths[number]] = joined[self.rows[number], self._span(number)]
        return part.to(chunk.batch.mask.device)

    def _span(self, number: int) -> slice:
        return slice(self.starts[number], self.starts[number] + self.lengths[number])


def lay_out(episodes: Sequence[Sequence[Segment]]) -> Layout:
    """The places of segments numbered through from the first episode's first."""
    rows, starts, turns, lengths = [], [], [], []
    for row, segments in enumerate(episodes):
        units = turn = 0
        for segment in segments:
            rows.append(row)
            starts.append(units)
            turns.append(turn)
            lengths.append(len(segment.mask))
            units, turn = units + len(segment.mask), turn + int(segment.turns[-1]) + 1
    return Layout(tuple(rows), tuple(starts), tuple(turns), tuple(lengths))


def make_chunks(
    segments: Sequence[Segment],
    order: Sequence[int],
    encode_images: Encoder,
    *,
    parts: int,
    token_budget: int,
    device: torch.device | str,
) -> list[list[Chunk]]:
    """The segments in `parts` minibatches of about equal size, each as micro-batches within the token budget."""
    minibatches = []
    for numbers in np.array_split(np.array(order, dtype=int), parts):
        groups = buckets([len(segments[number].ids) for number in numbers], budget=token_budget)
        chosen = [tuple(int(numbers[place]) for place in group) for group in groups]
        minibatches.append(
            [
                Chunk(own, to_device(collate([segments[number] for number in own], encode_images), device))
                for own in chosen
            ]
        )
    return minibatches
