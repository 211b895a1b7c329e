"""Many processes as one: every function here does nothing special when there is only one process."""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping
from typing import Any, TypeVar

import torch
from torch import Tensor
from torch import distributed as dist
from torch.distributed.tensor import DTensor

T = TypeVar("T")
N = TypeVar("N", float, Tensor)


def init_distributed() -> torch.device:
    """Join the other processes if torchrun started us (nccl with CUDA, gloo without); the device to compute on."""
    cuda = torch.cuda.is_available()
    device = torch.device("cuda", int(os.environ.get("LOCAL_RANK", "0"))) if cuda else torch.device("cpu")
    if cuda:
        torch.cuda.set_device(device)
    if int(os.environ.get("WORLD_SIZE", "1")) > 1 and not is_distributed():
        dist.init_process_group("nccl" if cuda else "gloo")
    return device


def close_distributed() -> None:
    """Part from the other processes."""
    if is_distributed():
        dist.destroy_process_group()


def is_distributed() -> bool:
    return dist.is_available() and dist.is_initialized()


def rank() -> int:
    return dist.get_rank() if is_distributed() else 0


def world_size() -> int:
    return dist.get_world_size() if is_distributed() else 1


def is_main() -> bool:
    """Whether this process is the one that writes files."""
    return rank() == 0


def barrier() -> None:
    """Wait for all processes."""
    if is_distributed():
        dist.barrier()


def broadcast(value: T) -> T:
    """The main process's `value`, in all of them. Anything that pickles; only our own processes are listened to."""
    if not is_distributed():
        return value
    box = [value]
    dist.broadcast_object_list(box, src=0)
    return box[0]


def gather(value: T) -> list[T]:
    """Every process's `value`, in all of them, by rank."""
    if not is_distributed():
        return [value]
    values: list[Any] = [None] * world_size()
    dist.all_gather_object(values, value)
    return values


def deal(values: list[T] | None) -> T:
    """To each process its own of the values that the main one has, by rank; the others give None."""
    if not is_distributed():
        assert values is not None
        return values[0]
    mine: list[Any] = [None]
    dist.scatter_object_list(mine, values, src=0)
    return mine[0]  # type: ignore[no-any-return]


def all_reduce_sum(value: N) -> N:
    """The sum over processes of a number, or of a tensor (as a new one)."""
    if not is_distributed():
        return value
    if isinstance(value, Tensor):
        total = value.detach().clone()
        dist.all_reduce(total)
        return total
    device = "cuda" if dist.get_backend() == "nccl" else "cpu"
    number = torch.tensor(value, dtype=torch.float64, device=device)
    dist.all_reduce(number)
    return number.item()


def sum_by_name(values: Mapping[str, float]) -> dict[str, float]:
    """The sum over processes under each name; a process without the name adds nothing."""
    gathered = gather(dict(values))
    names = sorted({name for one in gathered for name in one})
    return {name: sum(one.get(name, 0.0) for one in gathered) for name in names}


def sum_gradients(parameters: Iterable[Tensor]) -> None:
    """Add up each gradient over processes, in place: right for losses divided by the count over all of them.

    Parameters held in parts are passed over: their gradients were summed in the backward pass.
    """
    if not is_distributed():
        return
    learned = [p for p in parameters if p.requires_grad and not isinstance(p, DTensor)]
    if not learned:
        return
    # one exchange for all of them: for small models the round trips cost more than the numbers
    joined = torch.cat([_gradient(parameter).reshape(-1) for parameter in learned])
    had = joined.new_tensor([float(parameter.grad is not None) for parameter in learned])
    joined = torch.cat([joined, had])
    dist.all_reduce(joined)
    *sums, had = torch.split(joined, [*(parameter.numel() for parameter in learned), len(learned)])
    for parameter, summed, holders in zip(learned, sums, had.tolist()):
        # what no process has a gradient of must stay at rest: given zeros, Adam would move it by its momentum
        parameter.grad = summed.view_as(parameter) if holders else None


def _gradient(parameter: Tensor) -> Tensor:
    return torch.zeros_like(parameter) if parameter.grad is None else parameter.grad
