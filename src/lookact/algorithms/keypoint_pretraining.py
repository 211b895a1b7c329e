"""Teaches untrained eyes of a control policy to see: where the object and the target are, from the tool.

A pretrained DINOv2 arrives with trained eyes; a tiny one does not, and a few hundred demonstrations show it as many
scenes only. Looks into thousands of scenes are cheap where the truth is known; the head that tells it is thrown away.
The first glances of each camera are told where to look: the first at the object, the second at the target.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

import torch
from torch import Tensor, nn
from torch.nn import functional

from lookact.models.vla.encoders import initialise
from lookact.models.vla.policy import POOLED, VLA
from lookact.ops.masked import Metrics
from lookact.seeding import torch_rng

SCALE = 0.1
"""Metres that count as one."""
FINE = 0.1
"""Below this error, in the same unit, the loss is quadratic: a centimetre matters as much near as far."""
Spots = Mapping[str, Tensor]
"""Camera to (n, k, 2): where in its picture each of k things is, in -1..1; NaN where it is not in it."""


def make_head(vla: VLA, facts: int, seed: int) -> nn.Linear:
    """From the pooled of what is seen, (b, g), to the facts (b, f)."""
    head = nn.Linear(POOLED, facts)
    initialise(head, torch_rng(seed, "facts"))
    return head.to(vla.device)


def tell(vla: VLA, head: nn.Module, images: Mapping[str, Tensor], state: Tensor) -> tuple[Tensor, Tensor]:
    """What the eyes make out, (b, f) metres, and where every camera's glances go, (b, cameras, glances, 2)."""
    seen, pooled = vla.see({camera: frames.to(vla.device) for camera, frames in images.items()}, state.to(vla.device))
    told: Tensor = SCALE * head(pooled)
    where = seen[..., -2:]
    return told, where.view(len(where), len(vla.spec.cameras), -1, 2)


def looking_loss(
    vla: VLA, head: nn.Module, images: Mapping[str, Tensor], states: Tensor, facts: Tensor, spots: Spots
) -> Callable[[Sequence[int], int], tuple[Tensor, Metrics]]:
    """Over chosen looks: how far what the eyes make out is from the facts (n, f), and first glances from the spots."""

    def loss(numbers: Sequence[int], step: int) -> tuple[Tensor, Metrics]:
        rows = torch.tensor(numbers)
        told, where = tell(vla, head, {camera: frames[rows] for camera, frames in images.items()}, states[rows])
        true = facts[rows].to(told)
        error = functional.smooth_l1_loss(told / SCALE, true / SCALE, beta=FINE)
        astray = pointing_error(where, torch.stack([spots[camera][rows] for camera in vla.spec.cameras], dim=1))
        return error + astray, {
            "seeing/centimetres": 100 * (told - true).abs().mean().detach(),
            "seeing/pointing": astray.detach(),
        }

    return loss


def pointing_error(where: Tensor, spots: Tensor) -> Tensor:
    """Mean distance along an axis from each camera's first glances (b, c, glances, 2) to the things (b, c, k, 2)."""
    spots = spots[:, :, : where.shape[2]].to(where)
    shown = ~spots.isnan()
    gaps = (where[:, :, : spots.shape[2]] - spots.nan_to_num()).abs()
    return gaps[shown].sum() / shown.sum().clamp_min(1)
