"""Teaches untrained eyes of a control policy to see: where the object and the target are, from the tool.

A pretrained DINOv2 arrives with trained eyes; a tiny one does not, and a few hundred demonstrations show it as many
scenes only. Looks into thousands of scenes are cheap where the truth is known; the head that tells it is thrown away.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

import torch
from torch import Tensor, nn
from torch.nn import functional

from lookact.models.vla import VLA
from lookact.models.vla_encoders import initialise
from lookact.ops.masked import Metrics
from lookact.seeding import torch_rng

SCALE = 0.1
"""Metres that count as one."""
FINE = 0.1
"""Below this error, in the same unit, the loss is quadratic: a centimetre matters as much near as far."""
WIDTH = 128


def make_head(vla: VLA, facts: int, seed: int) -> nn.Sequential:
    """From all glances and the state, (b, n), to the facts (b, f)."""
    glances = len(vla.spec.cameras) * vla.eyes.spec.glances * (vla.eyes.width + 2)
    head = nn.Sequential(nn.Linear(glances + vla.spec.state_size, WIDTH), nn.GELU(), nn.Linear(WIDTH, facts))
    initialise(head, torch_rng(seed, "facts"))
    return head.to(vla.device)


def tell(vla: VLA, head: nn.Module, images: Mapping[str, Tensor], state: Tensor) -> Tensor:
    """What the eyes make out, (b, f) metres."""
    glances = vla.eyes({camera: frames.to(vla.device) for camera, frames in images.items()})
    seen = torch.cat([glances[camera].flatten(1) for camera in vla.spec.cameras], dim=1)
    told: Tensor = SCALE * head(torch.cat([seen, vla.normalised(state.to(vla.device))], dim=1))
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
