"""What LookAct adds to a vLLM worker: taking over weights or adapters, and telling what the engine then holds."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import torch
from safetensors import safe_open
from torch import Tensor

EXTENSION = f"{__name__}.WeightReader"
ADAPTER = 1
"""The number of the one adapter that every conversation is answered with."""
LORA_A = ".lora_A."
COLUMNS = 4
"""Of each matrix, looked up in the engine after a push."""


class WeightReader:
    """Mixed into vLLM's worker class by name; `self` is the worker."""

    def read_folder(self: Any, folder: str) -> dict[str, float]:
        """Takes over the safetensors of a checkpoint folder."""
        return self.read_tensors(tensors_in(Path(folder)))  # type: ignore[no-any-return]

    def read_tensors(self: Any, weights: Iterable[tuple[str, Tensor]]) -> dict[str, float]:
        """Takes over weights by their Hugging Face names, or adapters by PEFT's; tells each one's norm.

        Norms of adapters are of what the engine holds; that of a matrix of which it holds other columns is -1.
        """
        if self.model_runner.lora_config is not None:
            return read_adapter(self.model_runner.lora_manager, dict(weights))
        norms: dict[str, float] = {}
        samples: dict[str, Tensor] = {}

        def measured() -> Iterator[tuple[str, Tensor]]:
            for name, weight in weights:
                norms[name] = norm(weight)
                if weight.dim() == 2:
                    samples[name] = weight[:, columns_of(weight)].clone()
                yield name, weight

        self.reload_weights(weights_iterator=measured())
        repack(self.get_model())
        if self.parallel_config.tensor_parallel_size == 1:
            norms |= dict.fromkeys(stale(self.get_model(), samples), -1.0)
        return norms


def norm(weight: Tensor) -> float:
    """The Euclidean norm, summed in float64."""
    return float(torch.linalg.vector_norm(weight, dtype=torch.float64))


def read_adapter(manager: Any, tensors: Mapping[str, Tensor]) -> dict[str, float]:
    """Puts A and B in the place of the engine's adapter, and gives the norms of what its layers hold then."""
    from vllm.lora.lora_model import LoRAModel
    from vllm.lora.peft_helper import PEFTHelper

    held = manager._adapter_manager
    rank = next(weight.shape[0] for name, weight in tensors.items() if LORA_A in name)
    # the learner has scaled B: alpha over rank is 1
    how = PEFTHelper(r=rank, lora_alpha=rank, target_modules=[])
    mapper = getattr(held.model, "hf_to_vllm_mapper", None)
    mapper = None if mapper is None else mapper.get_rename_mapper()
    adapter = LoRAModel.from_lora_tensors(
        ADAPTER, dict(tensors), how, device="cpu", dtype=manager.lora_config.lora_dtype, weights_mapper=mapper
    )
    held.remove_adapter(ADAPTER)
    held.add_adapter(adapter)
    held.activate_adapter(ADAPTER)
    answer_with_adapter(manager)
    return held_norms(held, tensors, mapper)


def answer_with_adapter(manager: Any) -> None:
    """Every token goes through the adapter, whatever a request says: the engine serves one policy."""
    if hasattr(manager, "set_any_adapters"):
        return
    manager.set_any_adapters = manager.set_active_adapters

    def set_active_adapters(requests: set[Any], mapping: Any | None) -> None:
        if mapping is not None:
            ours = {
                "index_mapping": (ADAPTER,) * len(mapping.index_mapping),
                "prompt_mapping": (ADAPTER,) * len(mapping.prompt_mapping),
            }
            mapping = replace(mapping, **ours)
        manager.set_any_adapters(requests, mapping)

    manager.set_active_adapters = set_active_adapters


def held_norms(held: Any, tensors: Mapping[str, Tensor], mapper: Any) -> dict[str, float]:
    """The norm of each A and B in the layers' own buffers, by the name that it was sent under.

    Of a layer that is split over workers this one's part must be one of the parts of what was sent.
    """
    from vllm.lora.utils import parse_fine_tuned_lora_name

    slot = held.lora_index_to_id.index(ADAPTER)
    places: dict[str, tuple[Any, int]] = {}
    for name, module in held.modules.items():
        parent, _, last = name.rpartition(".")
        for number, part in enumerate(held.packed_modules_mapping.get(last, [last])):
            places[f"{parent}.{part}"] = module, number
    norms = {}
    for name, sent in tensors.items():
        at, is_a = parse_fine_tuned_lora_name(name, mapper)
        if at in places:
            module, number = places[at]
            rows, width = sent.shape
            stacked = module.lora_a_stacked if is_a else module.lora_b_stacked
            has = stacked[number][slot, 0, :rows, :width]
            norms[name] = norm(has) if has.shape == sent.shape else norm(sent) if is_part(has, sent) else -1.0
    return norms


def is_part(held: Tensor, whole: Tensor) -> bool:
    """Whether `held` is one of the equal parts that `whole` falls into along one axis."""
    axis = 0 if held.shape[0] != whole.shape[0] else 1
    parts = torch.split(whole.to(held.dtype).to(held.device), held.shape[axis], dim=axis)
    return any(torch.equal(held, part) for part in parts)


def columns_of(weight: Tensor) -> Tensor:
    """A few columns spread over a matrix."""
    return torch.linspace(0, weight.shape[1] - 1, COLUMNS).long()


def stale(model: Any, sent: Mapping[str, Tensor]) -> list[str]:
    """The matrices of which the engine's layers hold other columns than were sent.

    A layer is asked, not its parameter, which may be packed: of a unit vector it makes one column, to the last bit.
    """
    found = []
    for name, module in model.named_modules():
        parent, _, last = name.rpartition(".")
        parts = {"qkv_proj": ["q_proj", "k_proj", "v_proj"], "gate_up_proj": ["gate_proj", "up_proj"]}.get(last, [last])
        names = [hugging_face_name(f"{parent}.{part}.weight") for part in parts]
        plain = last.endswith("_proj") and hasattr(module, "quant_method") and getattr(module, "bias", None) is None
        if plain and all(n in sent for n in names):
            wanted = torch.cat([sent[n] for n in names])
            ones = torch.zeros(COLUMNS, module.input_size, dtype=wanted.dtype, device=wanted.device)
            ones[torch.arange(COLUMNS), columns_of(ones)] = 1.0
            told = module.quant_method.apply(module, ones.to(model_device(model)), None).T.cpu()
            if not torch.equal(told.to(wanted.dtype), wanted.cpu()):
                found += names
    return found


def model_device(model: Any) -> torch.device:
    """Where the model computes."""
    device: torch.device = next(model.parameters()).device
    return device


def hugging_face_name(name: str) -> str:
    """vLLM's name of a weight of the language model, as a checkpoint has it."""
    return name.replace("language_model.model.", "model.language_model.")


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
