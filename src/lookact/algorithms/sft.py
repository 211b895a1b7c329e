"""Supervised fine-tuning before RL: vision pretraining, then the expert's demonstrations, once in a run."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from typing import Any

from torch import Tensor
from transformers import AutoTokenizer

from lookact.algorithms.vision_pretraining import pretrain_vision
from lookact.algorithms.vlm import template_of
from lookact.algorithms.vlm_settings import SFT, VisionPretraining
from lookact.batch import Batch, TokenInputs
from lookact.data.demonstrations import demo_episode
from lookact.data.jsonl import append_row
from lookact.data.packing import Segment, micro_batches, shuffled, to_segments
from lookact.models.vlm.loading import save_chat
from lookact.models.vlm.policy import ChatVLM
from lookact.ops.losses import nll
from lookact.ops.masked import Metrics
from lookact.protocols import Task
from lookact.seeding import derive
from lookact.text.tokenizers import assert_same_tokenizer
from lookact.training.atomic_io import sync_tree, write_text
from lookact.training.distributed import barrier, broadcast, is_main, rank, sum_gradients, world_size
from lookact.training.optim import NonFiniteGuard, accumulate, build_adamw, clip_and_step, set_learning_rate
from lookact.training.progress import progress, timed
from lookact.training.run import Run
from lookact.training.weights import read_weights

FOLDER = "sft"
IMAGES_PER_ROOM = 4
TRAINED, DONE = "trained.json", "metrics.json"
"""Written when the weights are whole, and when they were measured."""


def supervised_start(
    policy: ChatVLM,
    task: Task,
    run: Run,
    *,
    vision: VisionPretraining,
    sft: SFT,
    seed: int,
    system: str,
    token_budget: int,
) -> dict[str, float]:
    """Vision pretraining and SFT of `policy`, or its weights of an earlier part of this run; the seconds of each."""
    folder = run.folder / FOLDER
    # the main process says for all: it may have written a file that another would find a moment later
    trained, done = broadcast(((folder / TRAINED).exists(), (folder / DONE).exists()))
    if trained or done:
        assert_same_tokenizer(AutoTokenizer.from_pretrained(folder, trust_remote_code=False), policy.tokenizer)
        read_weights(policy.model, folder)()
    if done:
        return {}
    return train_supervised(policy, task, run, vision, sft, seed=seed, system=system, token_budget=token_budget)


def measured_start(run: Run, seconds: dict[str, float], measure: Callable[[], dict[str, Any]]) -> dict[str, Any]:
    """What `measure` says of the policy after SFT, as `reports`, and the `seconds` of all; once a run."""
    folder = run.folder / FOLDER
    if broadcast((folder / DONE).exists()):
        before: dict[str, Any] = json.loads((folder / DONE).read_text())
        return before
    with timed(seconds, "evaluation after sft"):
        measured = {"reports": measure(), "seconds": seconds}
    if is_main():
        write_text(folder / DONE, json.dumps(measured, indent=2) + "\n")
    barrier()
    return measured


def train_supervised(
    policy: ChatVLM,
    task: Task,
    run: Run,
    vision: VisionPretraining,
    sft: SFT,
    *,
    seed: int,
    system: str,
    token_budget: int,
) -> dict[str, float]:
    """Vision pretraining and SFT, saved before anything else may fail, unless they were; the seconds of each."""
    folder, seconds = run.folder / FOLDER, dict[str, float]()
    if broadcast((folder / TRAINED).exists()):
        taken: dict[str, float] = json.loads((folder / TRAINED).read_text())
        return taken
    with timed(seconds, "vision pretraining"):
        if vision.rooms:
            pretrain_on_rooms(policy, task, run, vision, seed=seed, lr=2 * sft.lr)
    with timed(seconds, "sft"):
        if sft.demonstrations:
            fit(
                policy,
                demonstration_segments(policy, task, sft, seed=seed, system=system),
                total=sft.demonstrations,
                epochs=sft.epochs,
                batch_size=sft.batch_size,
                lr=sft.lr,
                token_budget=token_budget,
                seed=seed,
                report=phase_log(run, "sft"),
            )
    if is_main():
        sync_tree(save_chat(policy, folder))
        write_text(folder / TRAINED, json.dumps(seconds) + "\n")
    barrier()
    return seconds


def pretrain_on_rooms(
    policy: ChatVLM, task: Task, run: Run, vision: VisionPretraining, *, seed: int, lr: float
) -> None:
    """Vision pretraining on labelled images of random rooms; every process renders its share of them."""
    rooms = range(rank(), vision.rooms, world_size())
    images = task.pretraining_images(derive(seed, "looks"), rooms=rooms, per_room=IMAGES_PER_ROOM)
    numbers = [room * IMAGES_PER_ROOM + image for room in rooms for image in range(IMAGES_PER_ROOM)]
    pretrain_vision(
        policy,
        dict(zip(progress(numbers, "rendering pretraining images"), images)),
        total=vision.rooms * IMAGES_PER_ROOM,
        epochs=vision.epochs,
        batch_size=32,
        lr=lr,
        seed=seed,
        report=phase_log(run, "vision_pretraining"),
    )


def demonstration_segments(policy: ChatVLM, task: Task, sft: SFT, *, seed: int, system: str) -> dict[int, Segment]:
    """This process's share of the demonstrations as training segments, by their number."""
    specs = task.specs(seed, "demo", groups=sft.demonstrations)[rank() :: world_size()]
    template = template_of(policy, system=system)
    segments = {}
    for spec, demo in zip(progress(specs, "demonstrations"), task.demonstrations(specs, noise=sft.noise)):
        # a demonstration is one unbroken context, so one segment
        (segments[spec.group],) = to_segments(demo_episode(demo, template, name=spec.id), loss_on="action")
    return segments


def fit(
    policy: ChatVLM,
    segments: Mapping[int, Segment],
    *,
    total: int,
    epochs: int,
    batch_size: int,
    lr: float,
    token_budget: int,
    seed: int,
    report: Callable[[dict[str, float], int], None],
) -> None:
    """`epochs` passes over `total` segments, `batch_size` at a time; a process holds, and learns from, its own."""
    optimizer, guard = build_adamw({"policy": policy}, lr=lr), NonFiniteGuard()
    batches = [batch for epoch in range(epochs) for batch in shuffled(total, batch_size, seed, epoch)]
    policy.train()
    for step, batch in enumerate(bar := progress(batches, "sft"), start=1):
        set_learning_rate(optimizer, step, warmup=len(batches) // 20, total=len(batches), schedule="cosine", floor=0.05)
        mine = micro_batches(policy, [segments[i] for i in batch if i in segments], token_budget)
        loss, _ = accumulate(mine, sft_loss(policy), lambda b: b.mask.sum())
        sum_gradients(policy.parameters())
        metrics = clip_and_step(optimizer, policy.parameters(), max_norm=1.0, guard=guard, loss=loss)
        bar.remark = f"loss {loss:.3f}"
        report({"loss/sft": loss, **metrics}, step)


def sft_loss(policy: ChatVLM) -> Callable[[Batch[TokenInputs]], tuple[Tensor, Metrics]]:
    """The negative log-likelihood of a batch's counted units."""

    def loss(batch: Batch[TokenInputs]) -> tuple[Tensor, Metrics]:
        return nll(policy.evaluate(batch.inputs).logprobs, batch.mask)

    return loss


def phase_log(run: Run, phase: str) -> Callable[[dict[str, float], int], None]:
    """Writes a phase's metrics to a file of its own, since its steps are counted apart from RL's."""
    if not is_main():
        return lambda metrics, step: None
    path = run.folder / FOLDER / f"{phase}.jsonl"
    path.parent.mkdir(parents=True, exist_ok=True)
    path.unlink(missing_ok=True)

    def log(metrics: dict[str, float], step: int) -> None:
        append_row(path, {"step": step, **metrics})

    return log
