"""One learning step: gradients over ragged micro-batches, learning rates, clipping, and a stop when numbers explode."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any, Literal, TypeVar

import torch
from torch import Tensor, nn
from torch.distributed.tensor import DTensor

from lookact.errors import ConfigError, TrainingStopped
from lookact.training.distributed import all_reduce_sum, in_step, sum_by_name

T = TypeVar("T")
Metrics = dict[str, float]
Schedule = Literal["constant", "linear", "cosine"]
LOSS = "loss"


def build_adamw(
    modules: Mapping[str, nn.Module],
    *,
    lr: float | Mapping[str, float],
    weight_decay: float = 0.0,
    betas: tuple[float, float] = (0.9, 0.999),
    eps: float = 1e-8,
    fused: bool = False,
) -> torch.optim.AdamW:
    """AdamW over what requires a gradient, with a learning rate per module; norms and biases do not decay.

    A parameter belongs to the first module that holds it: name a head before the policy it is part of. `fused` steps
    all of a module at once, which pays where steps are many and small.
    """
    groups: list[dict[str, Any]] = []
    taken: set[Tensor] = set()
    for name, module in modules.items():
        peak = lr if isinstance(lr, int | float) else lr[name]
        own = [p for p in module.parameters() if p.requires_grad and p not in taken]
        taken.update(own)
        if fused and not weight_decay:
            groups.append({"params": own, "name": name, "lr": peak, "peak": peak, "weight_decay": 0.0})
            continue
        matrices, vectors = [p for p in own if p.dim() > 1], [p for p in own if p.dim() <= 1]
        groups.append({"params": matrices, "name": name, "lr": peak, "peak": peak, "weight_decay": weight_decay})
        groups.append({"params": vectors, "name": f"{name}/no_decay", "lr": peak, "peak": peak, "weight_decay": 0.0})
    groups = [group for group in groups if group["params"]]
    if any(p.dtype in (torch.bfloat16, torch.float16) for p in taken):
        raise ConfigError(
            f"weights of {', '.join(modules)} are learned in half precision, which rounds small steps away: "
            "set --model.lora_rank 32 to train adapters in float32, or --model.dtype float32"
        )
    if not groups:
        raise ConfigError(f"nothing to train: no parameter of {', '.join(modules)} requires a gradient")
    return torch.optim.AdamW(groups, betas=betas, eps=eps, fused=fused)


def learning_rate(
    step: int, *, peak: float, warmup: int = 0, total: int, schedule: Schedule = "constant", floor: float | None = None
) -> float:
    """Up in a line to `peak` at step `warmup`, then as `schedule` says to `floor` times `peak` at step `total`.

    Without a floor it would come to 0, and the last update be lost: that one has the rate of the one before.
    """
    if step < warmup:
        return peak * step / warmup
    if floor is None:
        step, floor = max(warmup, min(step, total - 1)), 0.0
    gone = min(1.0, (step - warmup) / max(1, total - warmup))
    left = {"constant": 1.0, "linear": 1.0 - gone, "cosine": 0.5 * (1.0 + math.cos(math.pi * gone))}[schedule]
    return peak * left if schedule == "constant" else peak * (floor + (1.0 - floor) * left)


def set_learning_rate(
    optimizer: torch.optim.Optimizer,
    step: int,
    *,
    warmup: int = 0,
    total: int,
    schedule: Schedule = "constant",
    floor: float | None = None,
    peak: float | None = None,
) -> Metrics:
    """Give each group of `build_adamw` its rate for `step`, from 1 to `total`; reports the last group's.

    `peak` is in place of the groups' own.
    """
    how: dict[str, Any] = {"warmup": warmup, "total": total, "schedule": schedule, "floor": floor}
    for group in optimizer.param_groups:
        group["lr"] = learning_rate(step, peak=group["peak"] if peak is None else peak, **how)
    return {"optim/lr": optimizer.param_groups[-1]["lr"]}


def accumulate(
    micro_batches: Sequence[T],
    loss_fn: Callable[[T], tuple[Tensor, Mapping[str, float | Tensor]]],
    unit_count: Callable[[T], float | Tensor],
    *,
    policy: nn.Module | None = None,
) -> tuple[float, Metrics]:
    """Gradients of the mean loss over all units of all micro-batches and processes, however ragged they are.

    `loss_fn` gives the mean over one micro-batch's units, `unit_count` how many those are; metrics are weighted alike.
    With several processes follow it by `distributed.sum_gradients`; name a `policy` that may be sharded, so that they
    pass through it in step.
    """
    sums = WeightedSum()
    for batch, share in weighted(micro_batches, unit_count, policy=policy):
        loss, metrics = loss_fn(batch)
        (loss * share).backward()  # type: ignore[no-untyped-call]
        sums.add({LOSS: loss.detach(), **metrics}, share)
    total = sums.over_processes()
    return total.pop(LOSS, 0.0), total


def weighted(
    micro_batches: Sequence[T], unit_count: Callable[[T], float | Tensor], *, policy: nn.Module | None = None
) -> Iterator[tuple[T, float]]:
    """Each micro-batch with its share of the counted units of all micro-batches and processes.

    The sum of `loss * share` is then the mean over all units, however ragged the micro-batches are. Those in which
    nothing counts are left out. Name a `policy` that may be sharded: all processes then pass through it in step, and a
    batch that is repeated for that has a share of 0.
    """
    counts = [float(unit_count(batch)) for batch in micro_batches]
    total = all_reduce_sum(sum(counts))
    for batch, count in in_step(list(zip(micro_batches, counts)), policy):
        yield batch, count / total


class WeightedSum:
    """Metrics of micro-batches summed by their shares: means over all counted units."""

    def __init__(self) -> None:
        self.sums: Metrics = {}

    def add(self, metrics: Mapping[str, float | Tensor], share: float) -> None:
        if share:
            for name, value in metrics.items():
                number = float(value.detach() if isinstance(value, Tensor) else value)
                self.sums[name] = self.sums.get(name, 0.0) + number * share

    def over_processes(self) -> Metrics:
        return sum_by_name(self.sums)


class NonFiniteGuard:
    """Counts learning steps skipped because the loss or a gradient was not finite; `limit` in a row end the run."""

    def __init__(self, limit: int = 5) -> None:
        self.limit = limit
        self.in_a_row = 0
        self.skipped = 0

    def passes(self, loss: float, grad_norm: float) -> bool:
        """Whether the step may be taken, in this and every other process."""
        bad = not (math.isfinite(loss) and math.isfinite(grad_norm))
        if all_reduce_sum(float(bad)) == 0:
            self.in_a_row = 0
            return True
        self.in_a_row += 1
        self.skipped += 1
        if self.in_a_row >= self.limit:
            raise TrainingStopped(
                f"loss {loss:g} and gradient norm {grad_norm:g} after {self.in_a_row} skipped steps in a row: "
                "lower the learning rate, or look at the last metrics"
            )
        return False

    def state_dict(self) -> dict[str, Any]:
        return {"in_a_row": self.in_a_row, "skipped": self.skipped}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        self.in_a_row, self.skipped = state["in_a_row"], state["skipped"]


def clip_and_step(
    optimizer: torch.optim.Optimizer,
    parameters: Iterable[Tensor],
    *,
    max_norm: float,
    guard: NonFiniteGuard,
    loss: float = 0.0,
) -> Metrics:
    """Clip the gradients to a joint norm of `max_norm`, step, and clear them; a step that is not finite is skipped."""
    total_norm = torch.nn.utils.clip_grad_norm_(parameters, max_norm)
    grad_norm = float(total_norm.full_tensor() if isinstance(total_norm, DTensor) else total_norm)
    if guard.passes(loss, grad_norm):
        optimizer.step()
    optimizer.zero_grad()
    return {"optim/grad_norm": grad_norm, "optim/skipped": float(guard.skipped)}
