"""Live memory of tensors by kind while code runs, and its peaks; the tensors may be fake, so that no byte is taken.

Fake tensors have shapes and no content. Weights and activations are fake; token ids, masks and positions are real,
since the code that is planned branches on them. What reads a number out of a fake tensor gets 1.
"""

from __future__ import annotations

import weakref
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any, Literal

import torch
from torch import Tensor
from torch._subclasses.fake_tensor import FakeTensor, FakeTensorMode
from torch.distributed.tensor import DTensor
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves

Kind = Literal[
    "weights",
    "adapters",
    "reference",
    "gradients",
    "optimizer",
    "activations",
    "logits",
    "kv_cache",
    "pixels",
    "engine",
]
Sizes = dict[str, float]
"""Bytes by kind."""
KEPT_REAL = 2**20
"""Bytes below which a tensor that is made from nothing is real: counters, random numbers, buffers of a few tokens."""
aten = torch.ops.aten


class MemoryTracker(TorchDispatchMode):  # type: ignore[no-untyped-call]
    """Counts the bytes of every tensor from its making to its end, the peak of each stage by kind."""

    def __init__(self, kind_of: Callable[[Tensor], Kind] = lambda _: "activations") -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self.fake = FakeTensorMode(allow_non_fake_inputs=True)
        self.kind_of, self.stage = kind_of, "start"
        self.live: Counter[str] = Counter()
        self.total = 0
        self.peaks: dict[str, Sizes] = {}
        self._highest: Counter[str] = Counter()
        self._storages: dict[int, tuple[Any, str, int]] = {}

    def empty(self, shape: Iterable[int], dtype: torch.dtype = torch.float32) -> Tensor:
        """A fake tensor, not counted until `label` names it."""
        with self.fake:
            return torch.empty(tuple(shape), dtype=dtype)

    def label(self, tensors: Iterable[Tensor | None], kind: Kind) -> None:
        """Says what tensors are for; those that were made outside are counted from now on."""
        for tensor in tensors:
            if tensor is not None:
                local = tensor.to_local() if isinstance(tensor, DTensor) else tensor
                self._count(local, kind)

    def begin(self, stage: str) -> None:
        """Peaks belong to this stage from now on."""
        self.stage = stage
        self._mark()

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Mapping[str, Any] | None = None) -> Any:
        kwargs = dict(kwargs or {})
        if any(issubclass(kind, DTensor) for kind in types):
            # its parts come here one by one
            return NotImplemented
        if torch._C._get_dispatch_mode(torch._C._TorchDispatchModeKey.FAKE) is not None:
            # torch works out a shape with fake tensors of its own
            return func(*args, **kwargs)
        given = [part for part in tree_leaves((args, kwargs)) if isinstance(part, Tensor)]
        is_fake = any(isinstance(part, FakeTensor) for part in given)
        if is_fake and func is aten._local_scalar_dense.default:
            return 1
        if is_fake and func is aten.index.Tensor:
            args = (args[0], _whole_numbers(args[1]))
        made = self._make(func, args, kwargs) if not given else func(*args, **kwargs)
        for part in tree_leaves(made):
            if isinstance(part, Tensor) and part.device.type != "meta":
                self._count(part)
        return made

    def _make(self, func: Any, args: Any, kwargs: dict[str, Any]) -> Any:
        """What is made from nothing: fake where it is large and of floating point."""
        with self.fake:
            made = func(*args, **kwargs)
        large = isinstance(made, Tensor) and made.is_floating_point() and made.nbytes > KEPT_REAL
        return made if large else func(*args, **kwargs)

    def _count(self, tensor: Tensor, kind: Kind | None = None) -> None:
        storage = tensor.untyped_storage()
        key = storage._cdata
        if key not in self._storages:
            kind, size = kind or self.kind_of(tensor), storage.nbytes()
            self._storages[key] = (weakref.ref(storage, lambda _: self._drop(key)), kind, size)
            self._add(kind, size)
        elif kind is not None:
            ref, old, size = self._storages[key]
            self._storages[key] = (ref, kind, size)
            self.live[old] -= size
            self.live[kind] += size

    def _drop(self, key: int) -> None:
        _, kind, size = self._storages.pop(key)
        self._add(kind, -size)

    def _add(self, kind: str, size: int) -> None:
        self.live[kind] += size
        self.total += size
        if size > 0 and self.total > self._highest[self.stage]:
            self._mark()

    def _mark(self) -> None:
        if self.total >= self._highest[self.stage]:
            self._highest[self.stage] = self.total
            self.peaks[self.stage] = {kind: float(size) for kind, size in self.live.items() if size}

    @contextmanager
    def watching(self) -> Iterator[MemoryTracker]:
        """Counts what runs inside, storages that are emptied and refilled (FSDP's) among it."""
        resize = torch.UntypedStorage.resize_

        def resize_and_count(storage: Any, size: int) -> Any:
            result = resize(storage, size)
            if storage._cdata in self._storages:
                ref, kind, old = self._storages[storage._cdata]
                self._storages[storage._cdata] = (ref, kind, storage.nbytes())
                self._add(kind, storage.nbytes() - old)
            return result

        torch.UntypedStorage.resize_ = resize_and_count  # type: ignore[method-assign,assignment]
        try:
            with self:
                yield self
        finally:
            torch.UntypedStorage.resize_ = resize  # type: ignore[method-assign]


def _whole_numbers(indices: Iterable[Any]) -> list[Any]:
    """Masks of an index as the places where they are True: a fake tensor can't tell how many those are."""
    found: list[Any] = []
    for index in indices:
        mask = isinstance(index, Tensor) and index.dtype == torch.bool and not isinstance(index, FakeTensor)
        found += index.nonzero(as_tuple=True) if mask else [index]
    return found
