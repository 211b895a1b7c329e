"""Resumable supervised phase: gradient steps on batches of examples, with a run folder of its own."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any

from torch import Tensor, nn

from lookact.ops.masked import Metrics
from lookact.training.distributed import rank, sum_gradients, world_size
from lookact.training.optim import NonFiniteGuard, accumulate, build_adamw, clip_and_step, set_learning_rate
from lookact.training.run import open_run

LossFn = Callable[[Sequence[int], int], tuple[Tensor, Metrics]]
"""The mean loss over the examples of these numbers; the second number seeds what is drawn for them."""


def supervised_phase(
    folder: Path,
    config: Mapping[str, Any],
    modules: Mapping[str, nn.Module],
    prepare: Callable[[], LossFn],
    batches: Sequence[Sequence[int]],
    *,
    lr: float,
    label: str,
    save_every: int,
    micro_batch_size: int | None = None,
) -> None:
    """A gradient step on each batch of example numbers, shared between processes; it resumes bit for bit.

    The loss is prepared only where a step is left to do. A batch's gradient is summed over `micro_batch_size` examples
    at a time; None: all at once.
    """
    learned = [parameter for module in modules.values() for parameter in module.parameters() if parameter.requires_grad]
    with open_run(folder, config, auto_resume=True, tensorboard=False) as run:
        optimizer, guard = build_adamw(modules, lr=lr), NonFiniteGuard()
        state = {"optimizer": optimizer, "guard": guard}
        run.restore(weights=modules, state=state)
        if run.done >= len(batches):
            return
        loss_fn, loss_name = prepare(), f"loss/{folder.name}"
        for step in run.steps(len(batches), label):
            rates = set_learning_rate(
                optimizer, step, warmup=len(batches) // 20, total=len(batches), schedule="cosine", floor=0.02
            )
            mine = list(batches[step - 1])[rank() :: world_size()]
            size = micro_batch_size or max(1, len(mine))
            micro_batches = [mine[start : start + size] for start in range(0, len(mine), size)]
            # each draws by a number of its own, the first by the step's
            draws = [step + len(batches) * index for index in range(len(micro_batches))]
            parts = list(zip(draws, micro_batches))
            loss, metrics = accumulate(parts, partial(_at, loss_fn), lambda part: len(part[1]))
            sum_gradients(learned)
            metrics |= clip_and_step(optimizer, learned, max_norm=1.0, guard=guard, loss=loss)
            metrics |= {loss_name: loss, **rates}
            run.log(metrics, step, show=loss_name)
            if step % save_every == 0 or step == len(batches):
                run.save(step, weights=modules, state=state, metrics=metrics, keep=1)


def _at(loss_fn: LossFn, part: tuple[int, Sequence[int]]) -> tuple[Tensor, Metrics]:
    draw, numbers = part
    return loss_fn(numbers, draw)
