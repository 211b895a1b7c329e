"""What training remembers besides weights, as plain data: optimisers, counters, coefficients and random streams.

Only tensors, numbers, strings, lists, tuples and dicts are written, so that reading them back never runs code.
"""

from __future__ import annotations

import pickle
import random
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from lookact.errors import DataError
from lookact.protocols import Stateful

PLAIN = (bool, int, float, str, bytes, type(None))


def is_stateful(item: object) -> bool:
    return hasattr(item, "state_dict") and hasattr(item, "load_state_dict")


def snapshot(state: Mapping[str, Stateful | Any]) -> dict[str, Any]:
    """Every item's state as plain data. Whatever could not be read back safely raises DataError, by name."""
    return {
        "stateful": sorted(name for name, item in state.items() if is_stateful(item)),
        "items": {name: plain(item.state_dict() if is_stateful(item) else item, name) for name, item in state.items()},
        "random": rng_state(),
    }


def plain(value: Any, name: str) -> Any:
    """`value` with numpy numbers made Python's; `name` is where it stands, for the error."""
    if isinstance(value, np.generic):
        return value.item()
    if type(value) in PLAIN:
        return value
    if isinstance(value, Tensor):
        return value.detach()
    if isinstance(value, dict):
        return {plain(key, name): plain(item, f"{name}.{key}") for key, item in value.items()}
    if type(value) in (list, tuple):
        return type(value)(plain(item, f"{name}[{index}]") for index, item in enumerate(value))
    raise DataError(
        f"state {name} is a {type(value).__name__}: give tensors, numbers, strings, lists or dicts "
        "(an array through torch.from_numpy)"
    )


def read_snapshot(path: Path) -> dict[str, Any]:
    """Read what `snapshot` gave and torch.save wrote. A pickle that would run code is refused, not run."""
    try:
        record = torch.load(path, map_location="cpu", weights_only=True)
    except (pickle.UnpicklingError, RuntimeError, EOFError, ValueError, KeyError) as error:
        reason = str(error).splitlines()[0]
        raise DataError(f"{path} is refused: it is not plain training state ({reason[:120]})") from error
    if not isinstance(record, dict) or not {"stateful", "items", "random"} <= set(record):
        raise DataError(f"{path} is refused: it is not training state")
    return record


def check_fit(saved: Mapping[str, Any], state: Mapping[str, Stateful | Any], source: Path) -> None:
    """Raise DataError unless `state` names exactly the stateful items saved, and each can take what was saved.

    A Stateful's own keys must not change over time; optimisers are compared down to each tensor's shape.
    """
    wanted = {name: item for name, item in state.items() if is_stateful(item)}
    differing = sorted(set(saved["stateful"]) ^ set(wanted))
    if differing:
        raise DataError(f"{source}: {', '.join(differing)} would be forgotten or is not saved: it is of another run")
    for name, item in wanted.items():
        ours, theirs = set(item.state_dict()), set(saved["items"][name])
        if ours != theirs:
            raise DataError(f"{source}: {name} differs in {sorted(map(str, ours ^ theirs))}: it is of another run")
        if isinstance(item, torch.optim.Optimizer):
            _check_optimizer(item, saved["items"][name], f"{source}: {name}")


def _check_optimizer(optimizer: torch.optim.Optimizer, saved: Mapping[str, Any], where: str) -> None:
    ours = [len(group["params"]) for group in optimizer.param_groups]
    theirs = [len(group["params"]) for group in saved["param_groups"]]
    if ours != theirs:
        raise DataError(f"{where} has groups of {theirs} parameters, this one {ours}: it is of another run")
    for group, saved_group in zip(optimizer.param_groups, saved["param_groups"]):
        for parameter, index in zip(group["params"], saved_group["params"]):
            for key, value in saved["state"].get(index, {}).items():
                if isinstance(value, Tensor) and value.dim() > 0 and value.shape != parameter.shape:
                    raise DataError(
                        f"{where} has {key} of shape {tuple(value.shape)} for a parameter of {tuple(parameter.shape)}: "
                        "it is of another run"
                    )


def rng_state() -> dict[str, Any]:
    """The global random streams of Python, numpy and torch as plain data."""
    version, words, gauss = random.getstate()
    numpy_state: Any = np.random.get_state(legacy=False)  # noqa: NPY002 - other libraries draw from the global stream
    return {
        "python": [version, list(words), gauss],
        "numpy": [
            torch.from_numpy(numpy_state["state"]["key"].astype(np.int64)),
            int(numpy_state["state"]["pos"]),
            int(numpy_state["has_gauss"]),
            float(numpy_state["gauss"]),
        ],
        "torch": torch.get_rng_state(),
        "cuda": torch.cuda.get_rng_state_all() if torch.cuda.is_available() else [],
    }


def set_rng_state(state: Mapping[str, Any]) -> None:
    """Put the global random streams back where `rng_state` found them; CUDA's only where the devices are as many."""
    version, words, gauss = state["python"]
    random.setstate((version, tuple(words), gauss))
    key, position, has_gauss, cached = state["numpy"]
    np.random.set_state(("MT19937", key.numpy().astype(np.uint32), position, has_gauss, cached))  # noqa: NPY002
    torch.set_rng_state(state["torch"])
    if torch.cuda.is_available() and len(state["cuda"]) == torch.cuda.device_count():
        torch.cuda.set_rng_state_all(state["cuda"])
