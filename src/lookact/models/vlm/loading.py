"""Chat VLMs from and to the Hugging Face layout: the tiny folder, a local snapshot or a name on the Hub."""

from __future__ import annotations

import copy
import importlib.util
import json
import re
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

import numpy as np
import torch
from peft import LoraConfig, PeftModel, get_peft_model
from peft.tuners.lora import LoraLayer
from safetensors import SafetensorError
from safetensors.torch import load_file, save_file
from torch import Tensor
from transformers import (
    MODEL_FOR_IMAGE_TEXT_TO_TEXT_MAPPING,
    AutoConfig,
    AutoModelForImageTextToText,
    AutoTokenizer,
    BitsAndBytesConfig,
)
from transformers.utils import cached_file

from lookact.errors import ConfigError, DataError, TokenMismatch
from lookact.models.actor_critic import ValueHead
from lookact.models.vlm.adapters import round_once
from lookact.models.vlm.families import OTHER, Family, family_of
from lookact.models.vlm.families.family import write_files
from lookact.models.vlm.policy import ChatVLM
from lookact.models.vlm.sources import ADAPTER_FILE, CHAT, CHAT_EXAMPLE, HUB_NAME, adapter_base, place_base

VALUE_FILE = "value_head.safetensors"
OUTPUT = "lm_head.weight"
WRAPPED = ".base_layer."


@dataclass(frozen=True)
class LoraSpec:
    """Low-rank adapters (arXiv:2106.09685) on the linears whose names end in `targets`."""

    rank: int = 16
    alpha: int | None = None
    """None: twice the rank."""
    dropout: float = 0.0
    """Above 0 the scores of one and the same unit vary from call to call."""
    targets: tuple[str, ...] = ("q_proj", "k_proj", "v_proj", "o_proj", "gate_proj", "up_proj", "down_proj")
    rslora: bool = False
    """Scale by alpha over the root of the rank (arXiv:2312.03732)."""


@dataclass(frozen=True)
class Processor:
    """A tokenizer with its chat template, and the image processor beside it."""

    tokenizer: Any
    image_processor: Any


def load_chat(
    source: Path | str,
    *,
    dtype: str = "float32",
    device: str = "cpu",
    device_map: str | Mapping[str, Any] | None = None,
    attention: str = "sdpa",
    lora: LoraSpec | None = None,
    quantise: Literal["nf4"] | None = None,
    min_pixels: int | None = None,
    max_pixels: int | None = None,
    gradient_checkpointing: bool = False,
    value_head: bool = False,
) -> ChatVLM:
    """A policy from `source`: a checkpoint folder, an adapter folder of `save_chat`, or a Hub name.

    An adapter folder brings its own adapters, whatever `lora` says. A saved value head is loaded with it;
    `value_head=True` makes a fresh one where there is none.
    """
    base, adapter = resolve(source)
    model = load_model(base, dtype, device, device_map, attention, quantise)
    if quantise is not None:
        model.requires_grad_(False)
    if adapter is not None:
        model = round_once(PeftModel.from_pretrained(model, str(adapter), is_trainable=True))
    elif lora is not None:
        model = add_lora(model, lora)
    processor = family_of(model.config.model_type).load_images(base, min_pixels, max_pixels)
    chat = ChatVLM(model, load_tokenizer(base, model), processor)
    check_chat(chat, base)
    chat.value_head = load_value_head(Path(source) / VALUE_FILE, chat, fresh=value_head)
    chat.banned = chat.banned.to(chat.output_weight.device)
    chat.gradient_checkpointing = gradient_checkpointing
    return chat


def save_chat(chat: ChatVLM, folder: Path | str, *, merge: bool = False) -> Path:
    """Write `chat` in the Hugging Face layout; adapters alone where it has them, unless they are to be merged in."""
    folder = Path(folder)
    folder.mkdir(parents=True, exist_ok=True)
    model = chat.model
    if merge and chat.model is not chat.causal:
        # on a copy: merging takes the adapters out of the model that is trained on
        model = copy.deepcopy(chat.model).merge_and_unload()
    model.save_pretrained(folder)
    place_base(folder)
    save_processor(chat, folder)
    if chat.value_head is not None:
        save_file(chat.value_head.state_dict(), folder / VALUE_FILE)
    return folder


def save_processor(chat: ChatVLM, folder: Path) -> None:
    """Saves the tokenizer and the image processor beside the weights."""
    if chat.family is OTHER:
        chat.image_processor.save_pretrained(folder)
        return
    chat.tokenizer.save_pretrained(folder)
    write_files(chat.family, chat.config, chat.image_processor, folder)


def load_tokenizer(base: str, model: Any) -> Any:
    """The checkpoint's tokenizer, which must be the model's; a chat template in a file of its own is taken in."""
    tokenizer = AutoTokenizer.from_pretrained(base, trust_remote_code=False)
    if tokenizer.chat_template is None:
        path = cached_file(base, "chat_template.json", _raise_exceptions_for_missing_entries=False)
        tokenizer.chat_template = None if path is None else json.loads(Path(path).read_text())["chat_template"]
    family, rows = family_of(model.config.model_type), model.get_output_embeddings().weight.shape[0]
    if tokenizer.chat_template is None and not family.name.startswith("qwen3-vl"):
        raise DataError(f"{base} has no chat template: put a chat_template.jinja into it")
    if len(tokenizer) > rows:
        raise TokenMismatch(f"{base}: the tokenizer has {len(tokenizer)} tokens, the model {rows}: take both from one")
    end = family.end or tokenizer.eos_token
    if end not in tokenizer.get_vocab():
        raise TokenMismatch(f"{base}: the tokenizer has no {end}, which ends a reply: take the model's own")
    return tokenizer


def check_chat(chat: ChatVLM, base: str) -> None:
    """Refuse a template, image tokens or an attention that are not this model's, before anything is sampled."""
    blank = np.zeros((64, 64, 3), dtype=np.uint8)
    shown = chat.encode_prompt(chat.spelling.opening("", "?", 1), [blank])
    if chat.image_pad_id not in shown:
        raise TokenMismatch(
            f"{base}: an image is written without the model's image token, {chat.image_pad_id}: the tokenizer or the "
            "chat template is another model's"
        )
    try:
        chat.spelling.check()
    except TokenMismatch as error:
        raise TokenMismatch(f"{base}: {error}") from None
    if chat.family.joined_images and chat.decoder.config._attn_implementation.startswith("flash"):
        raise ConfigError(f"{base}: FlashAttention can't join an image's tokens: set --model.attention sdpa")


def resolve(source: Path | str) -> tuple[str, Path | None]:
    """The base model's folder or Hub name, and the adapter folder if `source` is one."""
    folder = Path(source)
    if not folder.exists():
        if isinstance(source, str) and HUB_NAME.fullmatch(source):
            return source, None
        raise DataError(f"no checkpoint at {source}: give a folder that exists, or a Hub name like {CHAT_EXAMPLE}")
    if (folder / ADAPTER_FILE).exists():
        return resolve(adapter_base(folder))[0], folder
    if not (folder / "config.json").exists():
        raise DataError(f"{source} is not a checkpoint: it has no config.json")
    return str(folder), None


def load_model(
    base: str,
    dtype: str,
    device: str,
    device_map: str | Mapping[str, Any] | None,
    attention: str,
    quantise: Literal["nf4"] | None,
) -> Any:
    """The bare model of `base` on its device or devices, every weight found in the checkpoint."""
    options: dict[str, Any] = {"dtype": getattr(torch, dtype), "attn_implementation": attention}
    options["trust_remote_code"] = False
    if quantise is not None:
        options |= {"quantization_config": nf4(options["dtype"]), "device_map": device_map or {"": device}}
    elif device_map is not None:
        options["device_map"] = device_map
    try:
        # without the word transformers asks on a terminal, and runs what the checkpoint brings
        config = AutoConfig.from_pretrained(base, trust_remote_code=False)
        if type(config) not in MODEL_FOR_IMAGE_TEXT_TO_TEXT_MAPPING:
            raise ConfigError(f"{base} is a {config.model_type} model: choose a {CHAT} checkpoint")
        model, report = AutoModelForImageTextToText.from_pretrained(base, output_loading_info=True, **options)
    except (OSError, ValueError, KeyError, SafetensorError) as error:
        raise DataError(f"cannot load {base}: {first_line(error)}") from error
    if report["missing_keys"] or report["mismatched_keys"]:
        raise DataError(
            f"{base} lacks weights, such as {min(map(str, report['missing_keys'] or report['mismatched_keys']))}"
        )
    return model if "device_map" in options else model.to(device)


def nf4(compute: torch.dtype) -> BitsAndBytesConfig:
    """4-bit NormalFloat weights (arXiv:2305.14314), computed with in `compute`."""
    if importlib.util.find_spec("bitsandbytes") is None:
        raise ConfigError("quantise nf4 needs bitsandbytes: pip install 'lookact[quant]'")
    return BitsAndBytesConfig(load_in_4bit=True, bnb_4bit_quant_type="nf4", bnb_4bit_compute_dtype=compute)


def add_lora(model: Any, lora: LoraSpec) -> Any:
    """`model` frozen, with fresh adapters that change nothing yet."""
    settings = LoraConfig(
        r=lora.rank,
        lora_alpha=2 * lora.rank if lora.alpha is None else lora.alpha,
        lora_dropout=lora.dropout,
        target_modules=lora_modules(model, lora.targets),
        use_rslora=lora.rslora,
        bias="none",
    )
    try:
        return round_once(get_peft_model(model, settings))
    except ValueError as error:
        raise ConfigError(f"LoRA targets {lora.targets} do not fit the model: {first_line(error)}") from error


def lora_modules(model: Any, targets: tuple[str, ...]) -> list[str] | str:
    """The targets by name; a pattern for the language model alone where the vision tower has linears of these names."""
    vision = [name for name, _ in model.named_modules() if re.search(r"\.(visual|vision_model|vision_tower)\.", name)]
    if not any(name.endswith(tuple(f".{target}" for target in targets)) for name in vision):
        return list(targets)
    pattern = rf".*\.(language_model|text_model)\..*\.({'|'.join(map(re.escape, targets))})"
    inside = any(re.fullmatch(pattern, name) for name, _ in model.named_modules())
    return pattern if inside else list(targets)


def load_value_head(file: Path, chat: ChatVLM, *, fresh: bool) -> ValueHead | None:
    """The value head saved at `file`, else a fresh one or none."""
    weights = load_file(file) if file.exists() else None
    if weights is None and not fresh:
        return None
    head = ValueHead(chat.output_weight.shape[1])
    if weights is not None:
        head.load_state_dict(weights)
    return head.to(chat.output_weight.device)


def first_line(error: Exception) -> str:
    """The first line of an error."""
    return (str(error).strip().splitlines() or [type(error).__name__])[0]


@torch.no_grad()
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


@torch.no_grad()
def engine_state(chat: ChatVLM) -> dict[str, Tensor]:
    """What an engine that started from the base must be sent: A and B of the adapters, else every weight.

    Merged into bfloat16 weights, a small adapter is rounded away. B is scaled, so that B A is the change of the weight.
    """
    if chat.model is chat.causal:
        return merged_state(chat)
    layers = {name: module for name, module in chat.model.named_modules() if isinstance(module, LoraLayer)}
    state: dict[str, Tensor] = {}
    for name, layer in layers.items():
        (adapter,) = layer.active_adapters
        scaled = layer.lora_B[adapter].weight * layer.scaling[adapter]
        state[f"{name}.lora_A.weight"] = layer.lora_A[adapter].weight.detach().to(chat.output_weight.dtype)
        state[f"{name}.lora_B.weight"] = scaled.to(chat.output_weight.dtype)
    return state


@torch.no_grad()
def base_state(chat: ChatVLM) -> dict[str, Tensor]:
    """Every weight by its name in a checkpoint, as if there were no adapters."""
    state = {name: weight.detach() for name, weight in chat.causal.state_dict().items() if ".lora_" not in name}
    if chat.config.tie_word_embeddings:
        state.pop(OUTPUT, None)
    return {name.replace(WRAPPED, "."): weight for name, weight in state.items()}


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
    save_processor(chat, folder)
    write_tensors(state, folder)
    return folder


def write_tensors(state: Mapping[str, Tensor], folder: Path) -> None:
    """The weights alone, as one safetensors file."""
    tensors = {name: weight.detach().cpu().contiguous() for name, weight in state.items()}
    save_file(tensors, folder / "model.safetensors", metadata={"format": "pt"})


def load_processor(folder: Path) -> Processor:
    """Tokenizer and image processor of a checkpoint folder."""
    family: Family = family_of(AutoConfig.from_pretrained(folder, trust_remote_code=False).model_type)
    tokenizer = AutoTokenizer.from_pretrained(folder, trust_remote_code=False)
    return Processor(tokenizer, family.load_images(str(folder), None, None))
