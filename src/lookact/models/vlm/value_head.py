"""The critic of a token policy: one number per hidden state."""

from __future__ import annotations

from torch import Tensor, nn


class ValueHead(nn.Module):
    """Values of hidden states (..., d) -> (...), zero everywhere until it is trained."""

    def __init__(self, width: int, hidden: int = 0) -> None:
        """`width` is d; `hidden` > 0 puts a SiLU layer of that width in between."""
        super().__init__()
        self.inner = nn.Sequential(nn.Linear(width, hidden), nn.SiLU()) if hidden else nn.Identity()
        self.output = nn.Linear(hidden or width, 1)
        # a fresh critic must not push the policy anywhere
        nn.init.zeros_(self.output.weight)
        nn.init.zeros_(self.output.bias)

    def forward(self, states: Tensor) -> Tensor:
        # in the head's own precision: a critic in bfloat16 rounds away what it learns
        values: Tensor = self.output(self.inner(states.to(self.output.weight.dtype)))
        return values.squeeze(-1)
