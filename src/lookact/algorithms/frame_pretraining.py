"""Self-supervised vision pretraining on a task's own frames: inverse dynamics and reconstruction, without any label.

Linear heads, thrown away afterwards, tell from the visual tokens of two frames which action led from one to the other,
and from each token the pixels of its square, as far as they differ from the mean frame.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn import functional

from lookact.errors import ConfigError
from lookact.models.vlm.policy import ChatVLM
from lookact.ops.masked import Metrics
from lookact.types import FramePair, Image

PIXELS = 8
"""Pixels a side to which a visual token's square is scaled down before it is reconstructed."""


def self_supervised(
    chat: ChatVLM, pairs: Mapping[int, FramePair]
) -> tuple[nn.ModuleDict, Callable[[Sequence[Any]], tuple[Tensor, Metrics]]]:
    """Heads for frames like these, and their loss: cross-entropy of the action plus squared error of the pixels."""
    frames = squares([pair.after for pair in pairs.values()])
    mean, deviation = frames.mean(dim=0), frames.std().clamp_min(1e-3)
    tokens, width = mean.shape[0], chat.config.text_config.hidden_size
    actions = 1 + max(pair.action for pair in pairs.values())
    heads = nn.ModuleDict(
        {"action": nn.Linear(2 * tokens * width, actions), "pixels": nn.Linear(width, mean.shape[1])}
    ).to(chat.device)
    for parameter in heads.parameters():
        nn.init.zeros_(parameter)

    def loss(batch: Sequence[FramePair]) -> tuple[Tensor, Metrics]:
        pixels, grids = chat.encode_images([image for pair in batch for image in (pair.before, pair.after)])
        features, _ = chat.image_features([pixels], grids)
        if len(features) != 2 * len(batch) * tokens:
            raise ConfigError(
                f"{2 * len(batch) * tokens} squares of frames, but the model makes {len(features)} tokens of them: a "
                "pretrained encoder needs no such pretraining; set --vision_pretraining.rooms 0"
            )
        said = heads["action"](features.view(len(batch), -1))
        taken = functional.cross_entropy(said, torch.tensor([pair.action for pair in batch], device=said.device))
        true = (squares([pair.after for pair in batch]) - mean) / deviation
        drawn = heads["pixels"](features.view(len(batch), 2, tokens, width)[:, 1])
        error = functional.mse_loss(drawn, true.to(drawn))
        metrics = {"loss/inverse_dynamics": taken.detach(), "loss/reconstruction": error.detach()}
        return taken + error, metrics

    return heads, loss


def squares(images: Sequence[Image]) -> Tensor:
    """(b, tokens, values) in 0..1: each visual token's 32 x 32 pixels, averaged down to PIXELS a side."""
    stacked = torch.from_numpy(np.stack(images)).permute(0, 3, 1, 2) / 255.0
    small = functional.avg_pool2d(stacked, 32 // PIXELS)
    return functional.unfold(small, PIXELS, stride=PIXELS).transpose(1, 2)
