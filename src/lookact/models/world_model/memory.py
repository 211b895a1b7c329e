"""What a world model remembers of an episode: a GRU whose state is passed in and handed back, never kept inside.

A state is (layers, b, hidden): zeros at an episode's first frame, never None, and each row is reset by itself. With
`backprop` off nothing is learned through it.
"""

from __future__ import annotations

import itertools

import torch
from torch import Tensor, nn

from lookact.errors import DataError


class Memory(nn.Module):
    """Inputs (b, t, d) to what is remembered after each of them (b, t, hidden)."""

    def __init__(self, inputs: int, hidden: int, layers: int = 1, *, backprop: bool = True) -> None:
        super().__init__()
        self.gru = nn.GRU(inputs, hidden, layers, batch_first=True)
        self.hidden, self.layers, self.backprop = hidden, layers, backprop

    def initial(self, rows: int) -> Tensor:
        """Zeros (layers, rows, hidden): the state before an episode's first frame."""
        weight = next(self.gru.parameters())
        return weight.new_zeros(self.layers, rows, self.hidden)

    def forward(self, x: Tensor, carry: Tensor | None, starts: Tensor | None = None) -> tuple[Tensor, Tensor]:
        """What is remembered after each of x (b, t, d), and the state to go on with.

        starts (b, t) is True where an episode begins: that row's memory is zeros before it. The gradient reaches back
        to the first of these inputs, and into `carry` unless it is detached.
        """
        state = checked(carry, self.layers, len(x), self.hidden)
        with torch.set_grad_enabled(self.backprop and torch.is_grad_enabled()):
            if starts is None:
                return self._run(x, state)
            # rows that begin together are run together: between two such columns the GRU goes at full speed
            columns = sorted({0, *starts.any(dim=0).nonzero().flatten().tolist(), x.shape[1]})
            parts = []
            for first, last in itertools.pairwise(columns):
                state = reset_rows(state, starts[:, first])
                seen, state = self._run(x[:, first:last], state)
                parts.append(seen)
            return torch.cat(parts, dim=1), state

    def _run(self, x: Tensor, state: Tensor) -> tuple[Tensor, Tensor]:
        seen, after = self.gru(x, state.contiguous())
        return seen, after


def reset_rows(carry: Tensor, rows: Tensor) -> Tensor:
    """The state (layers, b, hidden) with zeros in the rows (b,) that are True, and all others as they were."""
    return carry.masked_fill(rows[None, :, None], 0.0)


def checked(carry: Tensor | None, layers: int, rows: int, hidden: int) -> Tensor:
    """The state, if it is one."""
    if carry is None:
        raise DataError("memory is None: start an episode with Memory.initial(rows), which is zeros")
    if carry.shape != (layers, rows, hidden):
        raise DataError(
            f"memory has shape {tuple(carry.shape)}, not (layers, rows, hidden) = {(layers, rows, hidden)}: "
            "start with Memory.initial(rows) and carry on with what is handed back"
        )
    return carry
