"""Teaches an untrained vision tower to read numbers off whole pictures: how far a task has come, where things are.

A judge that only hears which of two pictures is better learns to see slowly; the numbers behind a picture say far more.
A linear head reads them off all visual tokens of the picture, and is thrown away afterwards.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from lookact.algorithms.sft import shuffled
from lookact.algorithms.vision_pretraining import teach_tower
from lookact.errors import DataError
from lookact.models.vlm.kernels import vision_features
from lookact.models.vlm.policy import ChatVLM
from lookact.ops.masked import Metrics
from lookact.types import Image

Measured = tuple[Image, Tensor]
"""A picture and the numbers (k,) to read off it."""


def teach_to_measure(
    chat: ChatVLM,
    images: Sequence[Image],
    numbers: NDArray[np.floating],
    *,
    epochs: int,
    rows: int,
    lr: float,
    seed: int,
    report: Callable[[dict[str, float], int], None],
) -> None:
    """`epochs` passes over pictures of one size and their numbers (n, k), `rows` at a time; only the tower learns."""
    if len(images) != len(numbers):
        raise DataError(f"{len(images)} pictures with {len(numbers)} rows of numbers: give one row for each")
    targets = torch.from_numpy(standardise(numbers))
    lessons = {i: (image, targets[i]) for i, image in enumerate(images)}
    head = make_head(chat, images[0], outputs=targets.shape[1])
    batches = [batch for epoch in range(epochs) for batch in shuffled(len(images), rows, seed, epoch)]

    def loss(batch: Sequence[Measured]) -> tuple[Tensor, Metrics]:
        return measuring_loss(chat, head, batch)

    teach_tower(chat, head, lessons, loss, batches=batches, lr=lr, report=report)


def standardise(numbers: NDArray[np.floating]) -> NDArray[np.float32]:
    """Columns (n, k) of mean 0 and deviation 1; one that never changes becomes zeros."""
    deviation = numbers.std(axis=0)
    scaled = (numbers - numbers.mean(axis=0)) / np.where(deviation > 1e-6, deviation, 1.0)
    return np.asarray(scaled, dtype=np.float32)


def make_head(chat: ChatVLM, image: Image, *, outputs: int) -> nn.Linear:
    """Off all visual tokens of a picture like `image`, side by side, to `outputs` numbers; starts at zero."""
    (tokens,) = chat.image_token_counts(chat.encode_images([image])[1])
    head = nn.Linear(tokens * chat.config.text_config.hidden_size, outputs).to(chat.device)
    nn.init.zeros_(head.weight)
    nn.init.zeros_(head.bias)
    return head


def measuring_loss(chat: ChatVLM, head: nn.Linear, lessons: Sequence[Measured]) -> tuple[Tensor, Metrics]:
    """The squared error of the numbers read, in deviations; the mean's own is 1."""
    pixels, grids = chat.encode_images([image for image, _ in lessons])
    features, _ = vision_features(chat.causal.model.visual, [pixels], grids, lambda block, *args: block(*args))
    read = head(features.view(len(lessons), -1))
    errors = (read - torch.stack([numbers for _, numbers in lessons]).to(read.device)).square()
    # the first number is the one that matters most: it is told apart
    return errors.mean(), {"seeing/first": errors[:, 0].mean().detach()}
