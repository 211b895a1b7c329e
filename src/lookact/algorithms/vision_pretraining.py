"""Teaches an untrained vision tower to see, patch by patch, before words are asked of it.

A real Qwen3-VL arrives with trained eyes; a tiny one does not, and words alone teach it to see only slowly: a reply
says one thing about a picture, while every patch can say what it shows. A linear head reads, off each visual token,
what its four patches show and how near it is; the head is thrown away afterwards.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import TypeVar

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn import functional

from lookact.algorithms.sft import shuffled
from lookact.envs.rooms.pretraining_images import Look
from lookact.models.vlm.kernels import vision_features
from lookact.models.vlm.policy import ChatVLM
from lookact.ops.masked import Metrics
from lookact.training.distributed import sum_gradients
from lookact.training.optim import NonFiniteGuard, accumulate, build_adamw, clip_and_step, set_learning_rate
from lookact.training.progress import progress

Lesson = TypeVar("Lesson")


def pretrain_vision(
    chat: ChatVLM,
    looks: Mapping[int, Look],
    *,
    total: int,
    epochs: int,
    rows: int,
    lr: float,
    seed: int,
    report: Callable[[dict[str, float], int], None],
) -> None:
    """`epochs` passes over `total` looks, `rows` at a time, of which a process holds its own; only the tower learns."""
    head = make_head(chat, next(iter(looks.values())))
    batches = [batch for epoch in range(epochs) for batch in shuffled(total, rows, seed, epoch)]

    def loss(batch: Sequence[Look]) -> tuple[Tensor, Metrics]:
        return seeing_loss(chat, head, batch)

    teach_tower(chat, head, looks, loss, batches=batches, lr=lr, report=report)


def teach_tower(
    chat: ChatVLM,
    head: nn.Module,
    lessons: Mapping[int, Lesson],
    loss_of: Callable[[Sequence[Lesson]], tuple[Tensor, Metrics]],
    *,
    batches: Sequence[Sequence[int]],
    lr: float,
    report: Callable[[dict[str, float], int], None],
) -> None:
    """The vision tower, and the head that reads it, learn from batches of lessons, of which a process holds its own."""
    tower = chat.causal.model.visual
    optimizer, guard = build_adamw({"tower": tower, "head": head}, lr=lr), NonFiniteGuard()
    learned = [*tower.parameters(), *head.parameters()]
    for step, batch in enumerate(bar := progress(batches, "learning to see"), start=1):
        set_learning_rate(optimizer, step, warmup=len(batches) // 20, total=len(batches), schedule="linear")
        mine = [lessons[i] for i in batch if i in lessons]
        loss, parts = accumulate([mine] if mine else [], loss_of, len)
        sum_gradients(learned)
        metrics = clip_and_step(optimizer, learned, max_norm=1.0, guard=guard, loss=loss)
        bar.note(f"loss {loss:.3f}")
        report({"loss/seeing": loss, **parts, **metrics}, step)


def make_head(chat: ChatVLM, look: Look) -> nn.Linear:
    """Off a visual token (d,): for each of its patches the classes' logits, then its nearness."""
    width = chat.config.text_config.hidden_size
    head = nn.Linear(width, chat.merge**2 * (look.coverage.shape[-1] + 1)).to(chat.device)
    nn.init.zeros_(head.weight)
    nn.init.constant_(head.bias, -3.0)
    return head


def seeing_loss(chat: ChatVLM, head: nn.Linear, looks: Sequence[Look]) -> tuple[Tensor, Metrics]:
    """Cross-entropy of each patch's coverage, summed over classes, and the squared error of its nearness."""
    pixels, grids = chat.encode_images([look.rgb for look in looks])
    features, _ = vision_features(chat.causal.model.visual, [pixels], grids, lambda block, *args: block(*args))
    coverage, nearness = targets(looks, chat.merge)
    read = head(features).unflatten(-1, (chat.merge**2, -1))
    device = features.device
    covered = functional.binary_cross_entropy_with_logits(read[..., :-1], coverage.to(device), reduction="none").sum(-1)
    near = functional.mse_loss(read[..., -1], nearness.to(device))
    metrics = {"seeing/coverage": covered.mean().detach(), "seeing/nearness": near.detach()}
    return covered.mean() + 4.0 * near, metrics


def targets(looks: Sequence[Look], merge: int) -> tuple[Tensor, Tensor]:
    """Coverage (tokens, patches, classes) and nearness (tokens, patches), in the order of visual tokens."""
    coverage = np.stack([look.coverage for look in looks])
    nearness = np.stack([look.nearness for look in looks])[..., None]
    both = np.concatenate([coverage, nearness], axis=-1)
    b, rows, columns, kinds = both.shape
    blocks = both.reshape(b, rows // merge, merge, columns // merge, merge, kinds).transpose(0, 1, 3, 2, 4, 5)
    flat = torch.from_numpy(np.ascontiguousarray(blocks.reshape(-1, merge**2, kinds)))
    return flat[..., :-1], flat[..., -1]
