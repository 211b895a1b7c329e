"""Vision pretraining: dense auxiliary labels for an untrained vision encoder, patch by patch, before any text.

A real Qwen3-VL comes pretrained; a tiny one does not, and the language-model loss alone trains its encoder slowly: a
reply says one thing about an image, while every patch has labels. A linear head predicts, from each visual token, the
class coverage and the inverse depth of its four patches; the head is thrown away afterwards. Without labels,
`frame_pretraining` takes its place.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, TypeVar

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn import functional

from lookact.algorithms.frame_pretraining import self_supervised
from lookact.data.packing import shuffled
from lookact.envs.rooms.pretraining_images import LabelledImage
from lookact.errors import ConfigError
from lookact.models.vlm.policy import ChatVLM
from lookact.ops.masked import Metrics
from lookact.training.distributed import sum_gradients
from lookact.training.optim import NonFiniteGuard, accumulate, build_adamw, clip_and_step, set_learning_rate
from lookact.training.progress import progress
from lookact.types import FramePair

Example = TypeVar("Example")
LossOf = Callable[[Sequence[Any]], tuple[Tensor, Metrics]]


def pretrain_vision(
    chat: ChatVLM,
    images: Mapping[int, LabelledImage] | Mapping[int, FramePair],
    *,
    total: int,
    epochs: int,
    batch_size: int,
    lr: float,
    seed: int,
    report: Callable[[dict[str, float], int], None],
) -> None:
    """`epochs` passes over `total` images, `batch_size` at a time, of which a process holds its own."""
    batches = [batch for epoch in range(epochs) for batch in shuffled(total, batch_size, seed, epoch)]
    examples: Mapping[int, Any] = images
    first = next(iter(examples.values()))
    head: nn.Module
    head, loss = self_supervised(chat, examples) if isinstance(first, FramePair) else supervised(chat, first)
    train_encoder(chat, head, examples, loss, batches=batches, lr=lr, report=report)


def supervised(chat: ChatVLM, image: LabelledImage) -> tuple[nn.Linear, LossOf]:
    """A head for labels like those of `image`, and its loss."""
    head = make_head(chat, image)
    return head, lambda batch: dense_label_loss(chat, head, batch)


def train_encoder(
    chat: ChatVLM,
    head: nn.Module,
    examples: Mapping[int, Example],
    loss_of: Callable[[Sequence[Example]], tuple[Tensor, Metrics]],
    *,
    batches: Sequence[Sequence[int]],
    lr: float,
    report: Callable[[dict[str, float], int], None],
) -> None:
    """Train the vision encoder and a head on it, on batches of which a process holds its own examples."""
    encoder = chat.vision
    optimizer, guard = build_adamw({"tower": encoder, "head": head}, lr=lr), NonFiniteGuard()
    learned = [*encoder.parameters(), *head.parameters()]
    for step, batch in enumerate(bar := progress(batches, "vision pretraining"), start=1):
        set_learning_rate(optimizer, step, warmup=len(batches) // 20, total=len(batches), schedule="linear", floor=0.0)
        mine = [examples[i] for i in batch if i in examples]
        loss, parts = accumulate([mine] if mine else [], loss_of, len)
        sum_gradients(learned)
        metrics = clip_and_step(optimizer, learned, max_norm=1.0, guard=guard, loss=loss)
        bar.remark = f"loss {loss:.3f}"
        report({"loss/vision": loss, **parts, **metrics}, step)


def make_head(chat: ChatVLM, image: LabelledImage) -> nn.Linear:
    """Off a visual token (d,): for each of its patches the classes' logits, then its inverse depth."""
    width = chat.config.text_config.hidden_size
    head = nn.Linear(width, chat.merge**2 * (image.coverage.shape[-1] + 1)).to(chat.device)
    nn.init.zeros_(head.weight)
    nn.init.constant_(head.bias, -3.0)
    return head


def dense_label_loss(chat: ChatVLM, head: nn.Linear, images: Sequence[LabelledImage]) -> tuple[Tensor, Metrics]:
    """Cross-entropy of each patch's coverage, summed over classes, and the squared error of its inverse depth."""
    pixels, grids = chat.encode_images([image.rgb for image in images])
    features, _ = chat.image_features([pixels], grids)
    coverage, inverse_depth = targets(images, chat.merge)
    if len(features) != len(coverage):
        raise ConfigError(
            f"{len(coverage)} labelled cells, but the model makes {len(features)} tokens of them: a pretrained encoder "
            "needs no such labels; set --vision_pretraining.rooms 0"
        )
    predicted = head(features).unflatten(-1, (chat.merge**2, -1))
    device = features.device
    covered = functional.binary_cross_entropy_with_logits(
        predicted[..., :-1], coverage.to(device), reduction="none"
    ).sum(-1)
    near = functional.mse_loss(predicted[..., -1], inverse_depth.to(device))
    metrics = {"loss/patch_labels": covered.mean().detach(), "loss/inverse_depth": near.detach()}
    return covered.mean() + 4.0 * near, metrics


def targets(images: Sequence[LabelledImage], merge: int) -> tuple[Tensor, Tensor]:
    """Coverage (tokens, patches, classes) and inverse_depth (tokens, patches), in the order of visual tokens."""
    coverage = np.stack([image.coverage for image in images])
    inverse_depth = np.stack([image.inverse_depth for image in images])[..., None]
    both = np.concatenate([coverage, inverse_depth], axis=-1)
    b, rows, columns, kinds = both.shape
    blocks = both.reshape(b, rows // merge, merge, columns // merge, merge, kinds).transpose(0, 1, 3, 2, 4, 5)
    flat = torch.from_numpy(np.ascontiguousarray(blocks.reshape(-1, merge**2, kinds)))
    return flat[..., :-1], flat[..., -1]
