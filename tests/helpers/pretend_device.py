"""A GPU of pretence: tensors on the device "meta" that hold numbers, and as on a GPU may not be mixed with the CPU's.

Real code runs on it and comes to real numbers. What it computes is computed on the CPU, by the same kernels.
"""

from __future__ import annotations

import contextlib
from collections import Counter
from unittest import mock

import torch
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves, tree_map_only

DEVICE = "meta"
ATEN = torch.ops.aten
MOVES = {ATEN.copy_.default, ATEN._to_copy.default}
"""These may read from one device and write to the other."""
PICKS = {ATEN.index.Tensor, ATEN.index_put_.default}
"""These may take indices that lie on the CPU."""


class Placed(torch.Tensor):
    """A tensor on the device, around one on the CPU."""

    __torch_function__ = torch._C._disabled_torch_function_impl

    @staticmethod
    def __new__(cls, held):
        layout = {"strides": held.stride(), "storage_offset": held.storage_offset(), "dtype": held.dtype}
        return torch.Tensor._make_wrapper_subclass(cls, held.shape, device=torch.device(DEVICE), **layout)

    def __init__(self, held):
        self.held = held

    @classmethod
    def __torch_dispatch__(cls, op, types, args=(), kwargs=None):
        return compute(op, args, kwargs or {})[0]


def compute(op, args, kwargs):
    """The op's result, and whether it was worked out on the device. A number without dimensions may lie anywhere."""
    given = [leaf for leaf in tree_leaves((args, kwargs)) if isinstance(leaf, torch.Tensor)]
    placed = [tensor for tensor in given if isinstance(tensor, Placed)]
    others = [tuple(tensor.shape) for tensor in given if not isinstance(tensor, Placed) and tensor.dim()]
    if placed and others and op not in MOVES | PICKS:
        raise RuntimeError(f"{op}: tensors on two devices, {others} on the CPU")
    on_device = isinstance(args[0], Placed) if op is ATEN.copy_.default else bool(placed)
    if (asked := kwargs.get("device")) is not None:
        on_device = torch.device(asked).type == DEVICE
        kwargs = {**kwargs, "device": torch.device("cpu")}
    result = op(*tree_map_only(Placed, held, args), **tree_map_only(Placed, held, kwargs))
    # what was changed in place stays the tensor that it was
    known = {id(tensor.held): tensor for tensor in placed}

    def wrap(tensor):
        return known[id(tensor)] if id(tensor) in known else Placed(tensor) if on_device else tensor

    return tree_map_only(torch.Tensor, wrap, result), on_device


def held(tensor):
    return tensor.held


class Watch(TorchDispatchMode):
    """Counts ops by name, those on the device and those on the CPU."""

    def __init__(self):
        super().__init__()
        self.on_device, self.on_cpu = Counter(), Counter()

    def __torch_dispatch__(self, op, types, args=(), kwargs=None):
        result, on_device = compute(op, args, kwargs or {})
        (self.on_device if on_device else self.on_cpu)[op.overloadpacket.__name__] += 1
        return result


@contextlib.contextmanager
def pretend_device():
    """Within it torch has the device, and the `Watch` that is given tells what ran where."""
    fused = "torch.optim.optimizer._get_fused_kernels_supported_devices"
    with mock.patch(fused, return_value=["cpu", DEVICE]), Watch() as watch:
        yield watch
