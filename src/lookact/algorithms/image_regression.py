"""Image regression: pretrains an untrained vision encoder to predict state variables from whole images.

A denser signal for a judge than which of two images is better. A linear head reads all visual tokens of an image and is
thrown away afterwards.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from lookact.algorithms.vision_pretraining import train_encoder
from lookact.data.packing import shuffled
from lookact.errors import DataError
from lookact.models.vlm.policy import ChatVLM
from lookact.ops.masked import Metrics
from lookact.types import Image

Example = tuple[Image, Tensor]
"""An image and its targets (k,)."""


def regress_images(
    chat: ChatVLM,
    images: Sequence[Image],
    targets: NDArray[np.floating],
    *,
    epochs: int,
    rows: int,
    lr: float,
    seed: int,
    report: Callable[[dict[str, float], int], None],
) -> None:
    """`epochs` over images of one size and their targets (n, k), `rows` at a time; trains the vision encoder alone."""
    if len(images) != len(targets):
        raise DataError(f"{len(images)} images with {len(targets)} rows of targets: give one row for each")
    scaled = torch.from_numpy(standardise(targets))
    examples = {i: (image, scaled[i]) for i, image in enumerate(images)}
    head = make_head(chat, images[0], outputs=scaled.shape[1])
    batches = [batch for epoch in range(epochs) for batch in shuffled(len(images), rows, seed, epoch)]

    def loss(batch: Sequence[Example]) -> tuple[Tensor, Metrics]:
        return regression_loss(chat, head, batch)

    train_encoder(chat, head, examples, loss, batches=batches, lr=lr, report=report)


def standardise(targets: NDArray[np.floating]) -> NDArray[np.float32]:
    """Columns (n, k) of mean 0 and deviation 1; one that never changes becomes zeros."""
    deviation = targets.std(axis=0)
    scaled = (targets - targets.mean(axis=0)) / np.where(deviation > 1e-6, deviation, 1.0)
    return np.asarray(scaled, dtype=np.float32)


def make_head(chat: ChatVLM, image: Image, *, outputs: int) -> nn.Linear:
    """From all visual tokens of an image like `image`, concatenated, to `outputs` numbers; starts at zero."""
    tokens = int((chat.encode_prompt(chat.family.placeholder, [image]) == chat.image_pad_id).sum())
    head = nn.Linear(tokens * chat.config.text_config.hidden_size, outputs).to(chat.device)
    nn.init.zeros_(head.weight)
    nn.init.zeros_(head.bias)
    return head


def regression_loss(chat: ChatVLM, head: nn.Linear, examples: Sequence[Example]) -> tuple[Tensor, Metrics]:
    """Mean squared error of standardised targets; that of predicting the mean is 1."""
    pixels, grids = chat.encode_images([image for image, _ in examples])
    features, _ = chat.image_features([pixels], grids)
    read = head(features.view(len(examples), -1))
    errors = (read - torch.stack([numbers for _, numbers in examples]).to(read.device)).square()
    # the first target matters most: it is logged apart
    return errors.mean(), {"regression/first": errors[:, 0].mean().detach()}
