"""Weights shared out over processes by FSDP2: each holds a part of every tensor, and the whole of one layer at a time.

Sharded and unsharded runs differ by rounding alone: gradients are summed, not averaged, because losses are divided by
counts over all processes. What is saved is whole (`gathering.py`), so that any number of processes can go on with it.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, TypeVar

import torch
from torch import nn
from torch.distributed.fsdp import FSDPModule, MixedPrecisionPolicy, fully_shard, register_fsdp_forward_method
from torch.utils._pytree import SUPPORTED_NODES, register_dataclass

from lookact.batch import Scores, to_device
from lookact.errors import ConfigError
from lookact.models.actor_critic import ActorCriticOutput, ActorOutput
from lookact.training.distributed import gather, is_distributed
from lookact.training.settings import Parallel

if TYPE_CHECKING:
    from lookact.models.vlm.policy import ChatVLM

T = TypeVar("T")


def share_out(policy: ChatVLM, parallel: Parallel) -> None:
    """Shard a chat policy over the processes, layer by layer, if that is asked for and there are several."""
    if parallel.kind == "shard":
        shard(policy, policy.causal.model.language_model.layers, kept=learned_apart(policy), methods=("evaluate",))


def share_out_control(policy: nn.Module, parallel: Parallel, *, anchored: bool) -> None:
    """Shard a control policy over the processes, as one block: it is whole from each forward pass to its backward."""
    if parallel.kind != "shard":
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
    for sharded in sharded_parts(module):
        # a sum: 1 as the divisor, and by plain addition, which every backend knows
        sharded.set_gradient_divide_factor(1.0)
        sharded.set_force_sum_reduction_for_comms(True)
        # rows without a picture leave the eyes without a gradient in one process alone
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


def learned_apart(policy: ChatVLM) -> list[nn.Parameter]:
    """What is too small to shard: adapters beside a frozen model, and the value head."""
    head = [] if policy.value_head is None else list(policy.value_head.parameters())
    adapted = policy.model is not policy.causal
    return head + [p for p in policy.model.parameters() if adapted and p.requires_grad]


def sharded_parts(module: nn.Module) -> list[FSDPModule]:
    """Every block that is gathered and freed by itself; none where nothing is sharded."""
    return [part for part in module.modules() if isinstance(part, FSDPModule)]


@contextmanager
def whole(module: nn.Module) -> Iterator[None]:
    """All weights in every process for as long as the block runs: acting takes no turns with other processes."""
    make_whole(module)
    try:
        yield
    finally:
        for part in sharded_parts(module):
            part.reshard()


def make_whole(module: nn.Module) -> None:
    """All weights in every process from now on, until the next learning step puts them back in parts."""
    for part in sharded_parts(module):
        part.unshard()


def in_step(batches: Sequence[tuple[T, float]], module: nn.Module | None) -> Iterator[tuple[T, float]]:
    """The batches that count, each with its count; where `module` is sharded, equally many in every process.

    A process that has fewer repeats one with a count of 0, because each pass through a sharded module takes all of
    them. Gradients are exchanged once, with the last.
    """
    mine = [(batch, count) for batch, count in batches if count > 0]
    parts = [] if module is None else sharded_parts(module)
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
