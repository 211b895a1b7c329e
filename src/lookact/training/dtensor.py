"""Whole tensors from parts, and parts from whole ones."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from torch.distributed.tensor import DTensor, distribute_tensor

from lookact.training.distributed import is_main


def has_parts(tree: Any) -> bool:
    """Whether a tensor in parts is among what nested dicts and lists hold."""
    if isinstance(tree, Mapping):
        return any(map(has_parts, tree.values()))
    return isinstance(tree, DTensor) or (isinstance(tree, list | tuple) and any(map(has_parts, tree)))


def whole_tensors(tree: Any) -> Any:
    """The tree with every tensor in parts made whole on the main process's CPU, and left empty in the others."""
    if isinstance(tree, DTensor):
        # one at a time: nowhere but on the main process is there ever more than one
        gathered_tensor = tree.full_tensor()
        return gathered_tensor.cpu() if is_main() else gathered_tensor.new_empty(0)
    if isinstance(tree, Mapping):
        return {key: whole_tensors(value) for key, value in tree.items()}
    return type(tree)(map(whole_tensors, tree)) if isinstance(tree, list | tuple) else tree


def parts_like(tree: Any, held: Any) -> Any:
    """The tree of whole tensors, cut into parts where the tree `held` has them; every process has all of `tree`."""
    if isinstance(held, DTensor):
        local = tree.to(held.device, held.dtype)
        return distribute_tensor(local, held.device_mesh, held.placements, src_data_rank=None)
    if isinstance(held, Mapping):
        return {key: parts_like(value, held.get(key)) for key, value in tree.items()}
    return tree
