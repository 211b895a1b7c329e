"""Collectives that do nothing with one process, and FSDP2: each process holds a shard of every tensor.

Sharded and unsharded runs differ by rounding alone: gradients are summed, not averaged, because losses are divided by
counts over all processes. What is saved is whole (`weights.gathered`), so that any number of processes can go on.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from datetime import timedelta
from typing import TYPE_CHECKING, Any, TypeVar

import torch
from torch import Tensor, nn
from torch import distributed as dist
from torch.distributed.fsdp import FSDPModule, MixedPrecisionPolicy, fully_shard, register_fsdp_forward_method
from torch.distributed.tensor import DTensor
from torch.utils._pytree import SUPPORTED_NODES, register_dataclass

from lookact.batch import ActorCriticOutput, ActorOutput, Scores, to_device
from lookact.errors import ConfigError

if TYPE_CHECKING:
    from lookact.models.vlm.policy import ChatVLM

TIMEOUT, DEFAULT_TIMEOUT_S = "LOOKACT_TIMEOUT", 7200.0
"""Seconds that processes wait for one another; torch's own 10 minutes of NCCL are less than a rollout may take."""
T = TypeVar("T")
N = TypeVar("N", float, Tensor)


def init_distributed() -> torch.device:
    """Join the other processes if torchrun started us (nccl with CUDA, gloo without); the device to compute on."""
    cuda = torch.cuda.is_available()
    device = torch.device("cuda", int(os.environ.get("LOCAL_RANK", "0"))) if cuda else torch.device("cpu")
    if cuda:
        torch.cuda.set_device(device)
    if int(os.environ.get("WORLD_SIZE", "1")) > 1 and not is_distributed():
        # the others wait while the main process's workers, engine or evaluation are at it
        limit = timedelta(seconds=float(os.environ.get(TIMEOUT, DEFAULT_TIMEOUT_S)))
        dist.init_process_group("nccl" if cuda else "gloo", timeout=limit)
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


def mean_over_processes(metrics: Mapping[str, float | Tensor]) -> dict[str, float]:
    """Each number's mean over the processes."""
    total = sum_by_name({name: float(value) for name, value in metrics.items()})
    return {name: value / world_size() for name, value in total.items()}


def sum_gradients(parameters: Iterable[Tensor]) -> None:
    """Add up each gradient over processes, in place: right for losses divided by the count over all of them.

    DTensors are passed over: their gradients were summed in the backward pass.
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


# ---- FSDP2


def shard_policy(policy: ChatVLM, kind: str) -> None:
    """Shard a chat policy over the processes, layer by layer, if that is asked for and there are several."""
    if kind == "shard":
        shard(policy, policy.decoder.layers, kept=unsharded_parameters(policy), methods=("evaluate",))


def shard_control_policy(policy: nn.Module, kind: str, *, anchored: bool) -> None:
    """Shard a control policy over the processes, as one block: it is whole from each forward pass to its backward."""
    if kind != "shard":
        return
    if anchored:
        raise ConfigError("parallel.kind shard with ppo.kl_coef above 0: the anchor needs whole weights; use kind data")
    shard(policy, (), methods=("actor", "value"))


def shard(
    module: nn.Module,
    blocks: Iterable[nn.Module],
    *,
    kept: Iterable[nn.Parameter] = (),
    methods: Sequence[str] = (),
    compute: torch.dtype | None = None,
) -> None:
    """Shard `blocks` one by one and the rest of `module` as one more; optimisers are built afterwards.

    `kept` parameters stay whole in every process; `methods` are called like `forward`. The arithmetic is in
    `compute`, by default bfloat16 where the device has it, while weights and sums of gradients keep their precision.
    """
    if not is_distributed():
        return
    whole_parameters = set(kept)
    compute = compute or half_precision(module)
    policy = MixedPrecisionPolicy(param_dtype=compute, reduce_dtype=torch.float32 if compute else None)
    # what never learns has no backward pass to end its stay in memory
    frozen = True if not any(p.requires_grad for p in module.parameters()) else None
    for part in (*blocks, module):
        fully_shard(part, mp_policy=policy, ignored_params=whole_parameters, reshard_after_forward=frozen)
    for sharded in fsdp_modules(module):
        # a sum: 1 as the divisor, and by plain addition, which every backend knows
        sharded.set_gradient_divide_factor(1.0)
        sharded.set_force_sum_reduction_for_comms(True)
        # rows without an image leave the vision encoder without a gradient in one process alone
        sharded.set_reduce_scatter_unused_params(True)
    for method in methods:
        register_fsdp_forward_method(module, method)
    for output in (Scores, ActorOutput, ActorCriticOutput):
        if output not in SUPPORTED_NODES:
            # the hooks that begin a backward pass look for tensors inside what was returned
            register_dataclass(output)


def half_precision(module: nn.Module) -> torch.dtype | None:
    """Bfloat16 where the module's device computes in it, else None: as the weights are."""
    device = next(module.parameters()).device
    return torch.bfloat16 if device.type == "cuda" and torch.cuda.is_bf16_supported() else None


def unsharded_parameters(policy: ChatVLM) -> list[nn.Parameter]:
    """What is too small to shard: adapters beside a frozen model, and the value head."""
    head = [] if policy.value_head is None else list(policy.value_head.parameters())
    adapted = policy.model is not policy.causal
    return head + [p for p in policy.model.parameters() if adapted and p.requires_grad]


def fsdp_modules(module: nn.Module) -> list[FSDPModule]:
    """Every block that is gathered and freed by itself; none where nothing is sharded."""
    return [part for part in module.modules() if isinstance(part, FSDPModule)]


@contextmanager
def unsharded(module: nn.Module) -> Iterator[None]:
    """All weights in every process for as long as the block runs: acting takes no turns with other processes."""
    unshard(module)
    try:
        yield
    finally:
        for part in fsdp_modules(module):
            part.reshard()


def unshard(module: nn.Module) -> None:
    """All weights in every process from now on, until the next learning step shards them again."""
    for part in fsdp_modules(module):
        part.unshard()


def in_step(batches: Sequence[tuple[T, float]], module: nn.Module | None) -> Iterator[tuple[T, float]]:
    """The batches that count, each with its count; where `module` is sharded, equally many in every process.

    A process that has fewer repeats one with a count of 0, because each pass through a sharded module takes all of
    them. Gradients are exchanged once, with the last.
    """
    mine = [(batch, count) for batch, count in batches if count > 0]
    parts = [] if module is None else fsdp_modules(module)
    if module is None or not parts:
        yield from mine
        return
    lengths = gather(len(mine))
    if 0 in lengths and any(lengths):
        lent = gather(to_device(mine[0][0], "cpu") if mine else None)
        borrowed = next(batch for batch in lent if batch is not None)
        mine = mine or [(to_device(borrowed, next(module.parameters()).device), 0.0)]
    for index in range(max(lengths)):
        for part in parts:
            part.set_requires_gradient_sync(index + 1 == max(lengths), recurse=False)
        yield mine[index] if index < len(mine) else (mine[0][0], 0.0)
