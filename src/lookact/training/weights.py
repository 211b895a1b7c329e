"""Model weights on disk: safetensors in the layout Hugging Face reads, and back into a module, wholly or not at all."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from safetensors.torch import load_file, save_file
from torch import Tensor, nn

from lookact.errors import DataError
from lookact.training.dtensor import parts_like

Weights = nn.Module | Callable[[Path], None]
"""A module, or a function that writes into the folder it is given."""
MODEL_FILE = "model.safetensors"


def write_weights(item: Any, folder: Path, *, state: Mapping[str, Tensor] | None = None) -> None:
    """Write the Weights `item`: through its own `save_pretrained`, as `model.safetensors`, or as it likes.

    `state` takes the place of a module's own tensors, where it holds only parts of them.
    """
    folder.mkdir(parents=True, exist_ok=True)
    if hasattr(item, "save_pretrained"):
        item.save_pretrained(folder, **({} if state is None else {"state_dict": dict(state)}))
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
        module.load_state_dict(parts_like(saved, module.state_dict()))

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
