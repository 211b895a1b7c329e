"""Teaches untrained eyes of a control policy to see: where the object and the target are, from the tool.

A pretrained DINOv2 arrives with trained eyes; a tiny one does not, and a few hundred demonstrations show it as many
scenes only. Looks into thousands of scenes are cheap where the truth is known; the head that tells it is thrown away.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

import torch
from torch import Tensor, nn
from torch.nn import functional

from lookact.models.vla import GIST, VLA
from lookact.models.vla_encoders import initialise
from lookact.ops.masked import Metrics
from lookact.seeding import torch_rng

SCALE = 0.1
"""Metres that count as one."""
FINE = 0.1
"""Below this error, in the same unit, the loss is quadratic: a centimetre matters as much near as far."""


def make_head(vla: VLA, facts: int, seed: int) -> nn.Linear:
    """From the gist of what is seen, (b, g), to the facts (b, f)."""
    head = nn.Linear(GIST, facts)
    initialise(head, torch_rng(seed, "facts"))
    return head.to(vla.device)


def tell(vla: VLA, head: nn.Module, images: Mapping[str, Tensor], state: Tensor) -> Tensor:
    """What the eyes make out, (b, f) metres."""
    _, gist = vla.see({camera: frames.to(vla.device) for camera, frames in images.items()}, state.to(vla.device))
    told: Tensor = SCALE * head(gist)
    return told


def looking_loss(
    vla: VLA, head: nn.Module, images: Mapping[str, Tensor], states: Tensor, facts: Tensor
) -> Callable[[Sequence[int], int], tuple[Tensor, Metrics]]:
    """Over chosen looks: how far what the eyes make out is from the facts (n, f)."""

    def loss(numbers: Sequence[int], step: int) -> tuple[Tensor, Metrics]:
        rows = torch.tensor(numbers)
        told = tell(vla, head, {camera: frames[rows] for camera, frames in images.items()}, states[rows])
        true = facts[rows].to(told)
        error = functional.smooth_l1_loss(told / SCALE, true / SCALE, beta=FINE)
        return error, {"seeing/centimetres": 100 * (told - true).abs().mean().detach()}

    return loss
