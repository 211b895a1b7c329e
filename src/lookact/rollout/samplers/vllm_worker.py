"""What LookAct adds to a vLLM worker: taking over weights, and telling what it read."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

import torch
from safetensors import safe_open
from torch import Tensor

EXTENSION = f"{__name__}.WeightReader"


class WeightReader:
    """Mixed into vLLM's worker class by name; `self` is the worker."""

    def read_folder(self: Any, folder: str) -> dict[str, float]:
        """Takes over the safetensors of a checkpoint folder."""
        return self.read_tensors(tensors_in(Path(folder)))  # type: ignore[no-any-return]

    def read_tensors(self: Any, weights: Iterable[tuple[str, Tensor]]) -> dict[str, float]:
        """Takes over weights by their Hugging Face names and tells each one's norm."""
        norms: dict[str, float] = {}

        def measured() -> Iterator[tuple[str, Tensor]]:
            for name, weight in weights:
                norms[name] = float(torch.linalg.vector_norm(weight, dtype=torch.float64))
                yield name, weight

        self.reload_weights(weights_iterator=measured())
        repack(self.get_model())
        return norms


def repack(model: Any) -> None:
    """Packs anew, on a CPU, copies of weights that are shared: an output layer that is the embedding would stay old."""
    for module in model.modules():
        # where the weight went into the copy, it was loaded and packed as a whole
        if hasattr(module, "cpu_linear") and module.weight.numel():
            module.quant_method.process_weights_after_loading(module)


def tensors_in(folder: Path) -> Iterator[tuple[str, Tensor]]:
    """Name and tensor of every weight in a folder's safetensors files, one at a time."""
    for path in sorted(folder.glob("*.safetensors")):
        with safe_open(path, framework="pt") as file:
            for name in file.keys():  # noqa: SIM118
                yield name, file.get_tensor(name)
