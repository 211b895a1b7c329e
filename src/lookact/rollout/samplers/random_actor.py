"""Random policy: the baseline that every trained policy must beat."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np

from lookact.seeding import numpy_rng
from lookact.types import Decision, Observation


class RandomActor:
    """Replies with `draw` of a row's random stream and ignores the observation."""

    version = 0

    def __init__(self, draw: Callable[[np.random.Generator], str]) -> None:
        self.draw = draw
        self._streams: dict[int, np.random.Generator] = {}

    def begin(self, row: int, seed: int) -> None:
        self._streams[row] = numpy_rng(seed, "dummy")

    def act(self, rows: Sequence[int], observations: Sequence[Observation]) -> list[Decision]:
        nothing = np.zeros(0, dtype=np.float32)
        return [Decision(self.draw(self._streams[row]), nothing, nothing.astype(bool)) for row in rows]

    def end(self, row: int) -> None:
        del self._streams[row]
