"""Training batches: padded torch tensors over units, `(b, u)`, with one mask where True counts."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, fields, is_dataclass, replace
from typing import Any, Generic, TypeVar

import torch
from torch import Tensor

T = TypeVar("T")
Inputs = TypeVar("Inputs")


@dataclass(frozen=True)
class TokenInputs:
    """Token sequences with images, right-padded. Vision tensors stay per row; the model joins them."""

    ids: Tensor
    """(b, n) prompt, vision and sampled tokens in one stream."""
    attend: Tensor
    """(b, n) bool, False on padding."""
    positions: Tensor
    """(b, u) where in `ids` each unit stands; 0 on padding."""
    pixels: Sequence[Tensor] = field(default=(), metadata={"stays": True})
    """Per row (patches, d), possibly none; on the CPU, and of a collated batch bytes, until the vision encoder asks."""
    grids: tuple[Tensor, ...] = ()
    """Per row (images, 3): time, height and width in patches."""


@dataclass(frozen=True)
class ControlInputs:
    """One step a row for a control policy."""

    actions: Tensor
    """(b, a) as taken; of a flow policy the whole denoising chain."""
    state: Tensor
    """(b, s)"""
    images: dict[str, Tensor]
    """Camera to (b, h, w, 3) uint8, or (b, k, d) features where the encoder is frozen."""
    text_ids: Tensor
    """(b, n)"""
    history: Tensor
    """(b, k, a) the last k actions, oldest first, zeros before the first."""
    carry: Tensor | None = None
    """(layers, b, hidden) memory before the step."""
    true_state: Tensor | None = None
    """(b, f) of the simulator, for an asymmetric critic."""


@dataclass(frozen=True)
class SequenceInputs:
    """Windows of consecutive steps for a policy with memory, batch first."""

    steps: ControlInputs
    """Every tensor with a time axis after the row axis: (b, t, ...)."""
    carry: Tensor
    """(layers, b, hidden) at the window's start; zeros at an episode's first step."""
    starts: Tensor
    """(b, t) bool, True where an episode begins inside the window: memory resets there."""


@dataclass(frozen=True)
class ActorOutput:
    """The actor's output for a batch of steps, before the critic's."""

    mean: Tensor
    """(b, chunk, a)"""
    log_std: Tensor
    """(a,); (b, a) of a flow policy"""
    critic_features: Tensor
    """(b, ...) the critic's input."""
    carry: Tensor | None
    """(1, b, hidden) memory after the step."""

    def with_values(self, values: Tensor) -> ActorCriticOutput:
        """The same with the critic's values (b,)."""
        return ActorCriticOutput(self.mean, self.log_std, values, self.carry)


@dataclass(frozen=True)
class ActorCriticOutput:
    """Actor and critic on a batch of steps."""

    mean: Tensor
    """(b, chunk, a)"""
    log_std: Tensor
    """(a,); (b, a) of a flow policy"""
    values: Tensor
    """(b,)"""
    carry: Tensor | None
    """(1, b, hidden) memory after the step."""


@dataclass(frozen=True)
class Scores:
    """A policy's scores of units that were already sampled."""

    logprobs: Tensor
    """(b, u)"""
    entropy: Tensor
    """(b, u)"""
    values: Tensor | None = None
    """(b, u)"""


@dataclass(frozen=True)
class Batch(Generic[Inputs]):
    """Episodes or segments, ready to score and learn from."""

    inputs: Inputs
    """TokenInputs, ControlInputs or SequenceInputs."""
    mask: Tensor
    """(b, u) bool, True where a unit counts in the loss."""
    logprobs: Tensor
    """(b, u) as sampled."""
    turns: Tensor
    """(b, u) index of each unit's turn in its row; -1 on padding."""
    rewards: Tensor
    """(b, u) each turn's reward, on the turn's last unit."""
    returns: Tensor
    """(b,) the episode's summed reward."""
    groups: Tensor
    """(b,) rows of one group share a baseline."""
    terminated: Tensor
    """(b,) bool"""
    advantages: Tensor
    """(b, u) zeros until the recipe fills them in."""


def to_device(record: T, device: torch.device | str) -> T:
    """A copy of the record with every tensor inside it on `device`, but for fields that stay until they are used."""
    moved: Any = record
    if isinstance(record, Tensor):
        moved = record.to(device)
    elif isinstance(record, tuple):
        moved = tuple(to_device(item, device) for item in record)
    elif isinstance(record, dict):
        moved = {key: to_device(item, device) for key, item in record.items()}
    elif is_dataclass(record) and not isinstance(record, type):
        going = [f.name for f in fields(record) if not f.metadata.get("stays")]
        moved = replace(record, **{name: to_device(getattr(record, name), device) for name in going})
    return moved  # type: ignore[no-any-return]
