"""What a checkpoint holds: model weights in Hugging Face's layout, and training state as plain data.

Weights are safetensors, read back wholly or not at all. State (optimisers, counters, coefficients, random streams) is
tensors, numbers, strings, lists, tuples and dicts only, so that reading it never runs code. Neither depends on how many
processes wrote it: sharded tensors (DTensor) are gathered before a save and sharded again after a load.
"""

from __future__ import annotations

import pickle
import random
from collections.abc import Callable, Mapping
from functools import partial
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import torch
from safetensors.torch import load_file, save_file
from torch import Tensor, nn
from torch.distributed.tensor import DTensor, distribute_tensor

from lookact.errors import DataError
from lookact.models.vlm.sources import place_base
from lookact.protocols import Stateful
from lookact.training.distributed import is_main

Weights = nn.Module | Callable[[Path], None]
"""A module, or a function that writes into the folder it is given."""
MODEL_FILE = "model.safetensors"
PLAIN = (bool, int, float, str, bytes, type(None))


def write_weights(item: Any, folder: Path, *, state: Mapping[str, Tensor] | None = None) -> None:
    """Write the Weights `item`: through its own `save_pretrained`, as `model.safetensors`, or as it likes.

    `state` takes the place of a module's own tensors, where it holds only parts of them.
    """
    folder.mkdir(parents=True, exist_ok=True)
    if hasattr(item, "save_pretrained"):
        item.save_pretrained(folder, **({} if state is None else {"state_dict": dict(state)}))
        place_base(folder)
    elif isinstance(item, nn.Module):
        tensors = item.state_dict() if state is None else state
        save_file(_separate(tensors), folder / MODEL_FILE, metadata={"format": "pt"})
    else:
        item(folder)


def read_weights(module: nn.Module, folder: Path) -> Callable[[], None]:
    """Read and check a module's weights; the function returned puts them in place, and can no longer fail."""
    if hasattr(module, "peft_config"):
        return _read_adapter(module, folder)
    if hasattr(module, "from_pretrained"):
        saved = _read_pretrained(module, folder)
    else:
        saved = _read_file(folder / MODEL_FILE)
    check_tensors(saved, module.state_dict(), folder)

    def put_in_place() -> None:
        module.load_state_dict(shard_like(saved, module.state_dict()))

    return put_in_place


def check_tensors(saved: Mapping[str, Tensor], wanted: Mapping[str, Tensor], source: Path) -> None:
    """Raise DataError unless names and shapes agree."""
    missing, extra = sorted(set(wanted) - set(saved)), sorted(set(saved) - set(wanted))
    if missing or extra:
        what = f"lacks {missing[0]}" if missing else f"has {extra[0]}, which the model lacks"
        raise DataError(f"{source} {what} ({len(missing)} missing, {len(extra)} extra): it is of another model")
    for name, tensor in wanted.items():
        if saved[name].shape != tensor.shape:
            raise DataError(
                f"{source}: {name} has shape {tuple(saved[name].shape)}, the model's has {tuple(tensor.shape)}: "
                "it is of another model"
            )


def _separate(state: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """The same tensors, none sharing memory with another: safetensors refuses tied weights."""
    seen: set[int] = set()
    separate = {}
    for name, tensor in state.items():
        address = tensor.untyped_storage().data_ptr()
        separate[name] = tensor.detach().clone() if address in seen else tensor.detach().contiguous()
        seen.add(address)
    return separate


def _read_file(path: Path) -> dict[str, Tensor]:
    if not path.is_file():
        raise DataError(f"{path.parent} holds no {path.name}: it is of another model")
    return load_file(path)


def _read_pretrained(module: Any, folder: Path) -> Mapping[str, Tensor]:
    """A second copy in memory, because the names on disk are not the module's (tied, renamed or split into shards)."""
    try:
        copy = type(module).from_pretrained(folder, dtype=module.dtype, use_safetensors=True)
    except (OSError, ValueError, RuntimeError) as error:
        reason = str(error).splitlines()[0]
        raise DataError(f"{folder} does not load as {type(module).__name__}: {reason}") from error
    state: Mapping[str, Tensor] = copy.state_dict()
    return state


def _read_adapter(module: Any, folder: Path) -> Callable[[], None]:
    from peft import get_peft_model_state_dict, set_peft_model_state_dict

    saved = _read_file(folder / "adapter_model.safetensors")
    check_tensors(saved, get_peft_model_state_dict(module), folder)

    def put_in_place() -> None:
        set_peft_model_state_dict(module, saved)

    return put_in_place


# ---- training state


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


# ---- sharded tensors


def gathered(
    weights: Mapping[str, Weights], state: Mapping[str, Stateful | Any]
) -> tuple[dict[str, Weights], dict[str, Stateful | Any]]:
    """What to save, with full tensors for DTensors: all processes call it, the main one then has them."""
    return (
        {name: _writer(item) for name, item in weights.items()},
        {name: _gathered_state(item) for name, item in state.items()},
    )


def load_stateful(item: Stateful, saved: dict[str, Any]) -> None:
    """Give `item` its saved state, each tensor sharded as the item holds it."""
    if isinstance(item, torch.optim.Optimizer):
        saved = saved | {"state": _shard_moments(item, saved)}
    elif has_dtensors(held := item.state_dict()):
        saved = shard_like(saved, held)
    item.load_state_dict(saved)


def _writer(item: Any) -> Weights:
    # adapters are whole in every process, and they alone are saved of such a model
    if not isinstance(item, nn.Module) or hasattr(item, "peft_config") or not has_dtensors(item.state_dict()):
        return item  # type: ignore[no-any-return]
    return partial(write_weights, item, state=_full_state(item))


def _full_state(module: nn.Module) -> dict[str, Tensor]:
    """A module's full tensors; tied ones stay one tensor, by which those who write them know."""
    owners = {name: id(parameter) for name, parameter in module.named_parameters(remove_duplicate=False)}
    held = module.state_dict()
    one_of_each = {owners.get(name, name): tensor for name, tensor in held.items()}
    whole = {owner: full_tensors(tensor) for owner, tensor in one_of_each.items()}
    return {name: whole[owners.get(name, name)] for name in held}


def _gathered_state(item: Any) -> Any:
    if not hasattr(item, "state_dict") or not has_dtensors(held := item.state_dict()):
        return item
    state = full_tensors(held)
    return SimpleNamespace(state_dict=lambda: state, load_state_dict=item.load_state_dict)


def _shard_moments(optimizer: torch.optim.Optimizer, saved: Mapping[str, Any]) -> dict[int, Any]:
    """An optimiser's moments, sharded like the parameters they belong to."""
    parts = dict(saved["state"])
    for group, saved_group in zip(optimizer.param_groups, saved["param_groups"]):
        for parameter, index in zip(group["params"], saved_group["params"]):
            moments = saved["state"].get(index, {})
            parts[index] = {
                key: shard_like(value, parameter) if isinstance(value, Tensor) and value.dim() else value
                for key, value in moments.items()
            }
    return {index: moments for index, moments in parts.items() if moments}


def has_dtensors(tree: Any) -> bool:
    """Whether a DTensor is among what nested dicts and lists hold."""
    if isinstance(tree, Mapping):
        return any(map(has_dtensors, tree.values()))
    return isinstance(tree, DTensor) or (isinstance(tree, list | tuple) and any(map(has_dtensors, tree)))


def full_tensors(tree: Any) -> Any:
    """The tree with every DTensor gathered on the main process's CPU, and left empty in the others."""
    if isinstance(tree, DTensor):
        # one at a time: nowhere but on the main process is there ever more than one
        gathered_tensor = tree.full_tensor()
        return gathered_tensor.cpu() if is_main() else gathered_tensor.new_empty(0)
    if isinstance(tree, Mapping):
        return {key: full_tensors(value) for key, value in tree.items()}
    return type(tree)(map(full_tensors, tree)) if isinstance(tree, list | tuple) else tree


def shard_like(tree: Any, held: Any) -> Any:
    """The tree of full tensors, sharded where the tree `held` is; every process has all of `tree`."""
    if isinstance(held, DTensor):
        local = tree.to(held.device, held.dtype)
        return distribute_tensor(local, held.device_mesh, held.placements, src_data_rank=None)
    if isinstance(held, Mapping):
        return {key: shard_like(value, held.get(key)) for key, value in tree.items()}
    return tree
