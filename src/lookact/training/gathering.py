"""What a checkpoint holds does not depend on who wrote it: parts are put together, and cut again for who reads it."""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial
from types import SimpleNamespace
from typing import Any

import torch
from torch import Tensor, nn

from lookact.protocols import Stateful
from lookact.training.dtensor import has_parts, parts_like, whole_tensors
from lookact.training.weights import Weights, write_weights


def gathered(
    weights: Mapping[str, Weights], state: Mapping[str, Stateful | Any]
) -> tuple[dict[str, Weights], dict[str, Stateful | Any]]:
    """The same to save, with whole tensors for those in parts: all processes call it, the main one then has them."""
    return (
        {name: _writer(item) for name, item in weights.items()},
        {name: _kept(item) for name, item in state.items()},
    )


def load_stateful(item: Stateful, saved: dict[str, Any]) -> None:
    """Give `item` its saved state, each tensor in the parts that the item holds it in."""
    if isinstance(item, torch.optim.Optimizer):
        saved = saved | {"state": _optimizer_parts(item, saved)}
    elif has_parts(held := item.state_dict()):
        saved = parts_like(saved, held)
    item.load_state_dict(saved)


def _writer(item: Any) -> Weights:
    # adapters are whole in every process, and they alone are saved of such a model
    if not isinstance(item, nn.Module) or hasattr(item, "peft_config") or not has_parts(item.state_dict()):
        return item  # type: ignore[no-any-return]
    return partial(write_weights, item, state=_whole_state(item))


def _whole_state(module: nn.Module) -> dict[str, Tensor]:
    """A module's tensors, whole; tied ones stay one tensor, by which those who write them know."""
    owners = {name: id(parameter) for name, parameter in module.named_parameters(remove_duplicate=False)}
    held = module.state_dict()
    one_of_each = {owners.get(name, name): tensor for name, tensor in held.items()}
    whole = {owner: whole_tensors(tensor) for owner, tensor in one_of_each.items()}
    return {name: whole[owners.get(name, name)] for name in held}


def _kept(item: Any) -> Any:
    if not hasattr(item, "state_dict") or not has_parts(held := item.state_dict()):
        return item
    state = whole_tensors(held)
    return SimpleNamespace(state_dict=lambda: state, load_state_dict=item.load_state_dict)


def _optimizer_parts(optimizer: torch.optim.Optimizer, saved: Mapping[str, Any]) -> dict[int, Any]:
    """An optimiser's moments, cut like the parameters they belong to."""
    parts = dict(saved["state"])
    for group, saved_group in zip(optimizer.param_groups, saved["param_groups"]):
        for parameter, index in zip(group["params"], saved_group["params"]):
            moments = saved["state"].get(index, {})
            parts[index] = {
                key: parts_like(value, parameter) if isinstance(value, Tensor) and value.dim() else value
                for key, value in moments.items()
            }
    return {index: moments for index, moments in parts.items() if moments}
