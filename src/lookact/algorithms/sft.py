"""Supervised training of a chat policy on what experts said."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

from torch import Tensor

from lookact.batch import Batch, TokenInputs, to_device
from lookact.data.collate import collate
from lookact.data.segments import Segment, buckets
from lookact.models.vlm.policy import ChatVLM
from lookact.ops.imitation import nll
from lookact.ops.masked import Metrics
from lookact.seeding import numpy_rng
from lookact.training.distributed import sum_gradients
from lookact.training.optim import NonFiniteGuard, accumulate, build_adamw, clip_and_step, set_learning_rate
from lookact.training.progress import progress


def fit(
    chat: ChatVLM,
    segments: Mapping[int, Segment],
    *,
    total: int,
    epochs: int,
    rows: int,
    lr: float,
    token_budget: int,
    seed: int,
    report: Callable[[dict[str, float], int], None],
) -> None:
    """`epochs` passes over `total` segments, `rows` at a time; a process holds, and learns from, its own."""
    optimizer, guard = build_adamw({"policy": chat}, lr=lr), NonFiniteGuard()
    batches = [batch for epoch in range(epochs) for batch in shuffled(total, rows, seed, epoch)]
    chat.train()
    for step, batch in enumerate(bar := progress(batches, "imitating"), start=1):
        set_learning_rate(optimizer, step, warmup=len(batches) // 20, total=len(batches), schedule="cosine", floor=0.05)
        mine = micro_batches(chat, [segments[i] for i in batch if i in segments], token_budget)
        loss, _ = accumulate(mine, imitation_of(chat), lambda b: b.mask.sum())
        sum_gradients(chat.parameters())
        metrics = clip_and_step(optimizer, chat.parameters(), max_norm=1.0, guard=guard, loss=loss)
        bar.note(f"loss {loss:.3f}")
        report({"loss/imitation": loss, **metrics}, step)


def imitation_of(chat: ChatVLM) -> Callable[[Batch[TokenInputs]], tuple[Tensor, Metrics]]:
    """The negative log-likelihood of a batch's counted units under `chat`."""

    def loss(batch: Batch[TokenInputs]) -> tuple[Tensor, Metrics]:
        return nll(chat.evaluate(batch.inputs).logprobs, batch.mask)

    return loss


def micro_batches(chat: ChatVLM, segments: Sequence[Segment], token_budget: int) -> list[Batch[TokenInputs]]:
    """Rows of similar length together, each batch within `token_budget` padded tokens, on the model's device."""
    groups = buckets([len(segment.ids) for segment in segments], budget=token_budget)
    return [to_device(collate([segments[i] for i in group], chat.encode_images), chat.device) for group in groups]


def shuffled(total: int, size: int, seed: int, epoch: int) -> list[list[int]]:
    """Indices below `total` in an order drawn for this epoch, `size` at a time."""
    order = numpy_rng(seed, "order", epoch).permutation(total).tolist()
    return [order[start : start + size] for start in range(0, total, size)]
