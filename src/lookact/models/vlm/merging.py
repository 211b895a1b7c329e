"""A chat model's weights as another engine reads them: Hugging Face's names, adapters merged in."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from peft.tuners.lora import LoraLayer
from safetensors.torch import save_file
from torch import Tensor, no_grad
from transformers import AutoTokenizer

from lookact.errors import ConfigError
from lookact.models.vlm.loading import load_image_processor, save_readers
from lookact.models.vlm.policy import ChatVLM

OUTPUT = "lm_head.weight"
WRAPPED = ".base_layer."


@dataclass(frozen=True)
class Readers:
    """A tokenizer with its chat template, and the image processor beside it."""

    tokenizer: Any
    image_processor: Any


@no_grad()
def merged_state(chat: ChatVLM) -> dict[str, Tensor]:
    """Every weight by its name in a checkpoint, the model's own tensors where no adapter changes them.

    An output layer that is the embedding is left out, as in a checkpoint.
    """
    causal = chat.causal
    state: dict[str, Tensor] = {name: weight for name, weight in causal.state_dict().items() if ".lora_" not in name}
    for name, module in causal.named_modules():
        if isinstance(module, LoraLayer):
            state[f"{name}{WRAPPED}weight"] = merged_weight(name, module)
    if chat.config.tie_word_embeddings:
        state.pop(OUTPUT, None)
    return {name.replace(WRAPPED, "."): weight.detach() for name, weight in state.items()}


def merged_weight(name: str, layer: Any) -> Tensor:
    """The weight that a linear with adapters acts with."""
    weight: Tensor = layer.get_base_layer().weight
    if not weight.is_floating_point():
        raise ConfigError(f"{name} is quantised and can't be sent to another engine: set model.quantise none")
    adapters = [adapter for adapter in layer.active_adapters if adapter in layer.lora_A]
    for adapter in adapters:
        weight = weight + layer.get_delta_weight(adapter).to(weight.dtype)
    return weight


def write_snapshot(chat: ChatVLM, state: Mapping[str, Tensor], folder: Path) -> Path:
    """A whole checkpoint of `state` in the Hugging Face layout, with `chat`'s configuration, tokenizer and pixels."""
    folder.mkdir(parents=True, exist_ok=True)
    chat.config.save_pretrained(folder)
    save_readers(chat, folder)
    write_tensors(state, folder)
    return folder


def write_tensors(state: Mapping[str, Tensor], folder: Path) -> None:
    """The weights alone, as one safetensors file."""
    tensors = {name: weight.detach().cpu().contiguous() for name, weight in state.items()}
    save_file(tensors, folder / "model.safetensors", metadata={"format": "pt"})


def load_readers(folder: Path) -> Readers:
    """What a checkpoint folder's engine reads with."""
    return Readers(AutoTokenizer.from_pretrained(folder), load_image_processor(str(folder), None, None))
