"""A world model built from its spec: text encoder and tokenizer, LoRA adapters, and which parameters are trained."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from peft import LoraConfig, inject_adapter_in_model
from safetensors.torch import save_file
from transformers import AutoTokenizer

from lookact.errors import ConfigError
from lookact.models.vla.encoders import TextEncoder, TextSpec, open_bert, set_finetune, tiny_bert, train_wordpiece
from lookact.models.vlm.sources import TINY
from lookact.models.world_model.layers import EXPERTS, TARGETS
from lookact.models.world_model.model import MERGE, WorldModel, WorldModelSpec
from lookact.models.world_model.vision import NONE, open_vision
from lookact.seeding import derive

OWNERS = {
    "vq": "vq",
    "text_encoder": "text_encoder",
    "vision_encoder": "vision_encoder",
    "vision": "vision",
    "understanding": "understanding",
    "pos_understanding": "understanding",
    "no_head_camera": "understanding",
    "action_head": "action",
    "critic": "action",
    "foresight": "action",
    "pos_foresight": "action",
    "pos_foresight_frame": "action",
}
"""First part of a parameter's name to its owner; all others but attention's are the generation expert's."""


def build_world_model(
    spec: WorldModelSpec,
    *,
    text: str,
    vision: str = NONE,
    tokenizer: Any,
    seed: int,
    lora_rank: int = 0,
    lora_alpha: int = 32,
    device: str = "cpu",
) -> WorldModel:
    """A fresh model; `text` names its frozen BERT ('tiny', or a checkpoint), `vision` a frozen vision encoder."""
    # what torch draws by itself comes from a stream of its own, the same in every process
    with torch.random.fork_rng(devices=range(torch.cuda.device_count())):
        torch.manual_seed(derive(seed, "world model"))
        encoder = open_vision(vision, spec.vq.grid // MERGE)
        model = WorldModel(spec, open_text_encoder(text, tokenizer, seed), encoder, seed=seed)
    if lora_rank:
        add_adapters(model, rank=lora_rank, alpha=lora_alpha, seed=seed)
    return model.to(device)


def open_tokenizer(text: str, corpus: Iterable[str], source: Path | None) -> Any:
    """A checkpoint's tokenizer where `source` holds one, a tiny one for `corpus`, or the pretrained one of `text`."""
    if source is not None and (source / "tokenizer.json").is_file():
        return AutoTokenizer.from_pretrained(source, trust_remote_code=False)
    if text == TINY:
        return train_wordpiece(corpus, TextSpec())
    return AutoTokenizer.from_pretrained(text, trust_remote_code=False)


def open_text_encoder(source: str, tokenizer: Any, seed: int) -> TextEncoder:
    """The frozen text encoder."""
    text = TextSpec(source=source, finetune="frozen")
    tiny = tiny_bert(hidden=text.hidden, layers=text.layers, vocabulary=len(tokenizer), length=text.length)
    bert = open_bert(text.source, tiny if text.source == TINY else None, seed)
    return TextEncoder(text, set_finetune(bert, "frozen", rank=0, seed=seed), tokenizer)


@dataclass(frozen=True)
class Freeze:
    """What is not trained. The VQ tokenizer and the pretrained encoders never are."""

    vision_encoder: bool = False
    gen_expert: bool = False
    """And with it the memory."""
    act_expert_only: bool = False
    """Train the action expert and the critic only."""
    gen_expert_only: bool = False
    """Train the generation expert and the memory only."""

    def __post_init__(self) -> None:
        if self.gen_expert_only and (self.act_expert_only or self.gen_expert):
            raise ConfigError(
                "train_gen_expert_only leaves nothing else to train: drop freeze_gen_expert and train_act_expert_only"
            )

    def trains(self, owner: str) -> bool:
        """Whether parameters of this owner are trained."""
        if owner in ("vq", "text_encoder", "vision_encoder"):
            return False
        if self.act_expert_only or self.gen_expert_only:
            return owner == ("action" if self.act_expert_only else "generation")
        frozen = {"vision": self.vision_encoder, "generation": self.gen_expert}
        return not frozen.get(owner, False)


def freeze(model: WorldModel, how: Freeze) -> None:
    """Set `requires_grad` of every parameter; with LoRA adapters the experts' own linears are always frozen."""
    adapted = any("lora_" in name for name, _ in model.named_parameters())
    for name, parameter in model.named_parameters():
        base = adapted and name.startswith("attention.blocks") and "lora_" not in name
        parameter.requires_grad_(how.trains(owner_of(name)) and not base)


def owner_of(name: str) -> str:
    """A parameter's owner: vq, text_encoder, vision_encoder, vision, or an expert."""
    first = name.split(".")[0]
    if first == "attention":
        return next(expert for expert in EXPERTS if f".{expert}." in name)
    return OWNERS.get(first, "generation")


def add_adapters(model: WorldModel, *, rank: int, alpha: int, seed: int) -> None:
    """LoRA (arXiv:2106.09685) on the experts' attention; B starts at zero, so that outputs are unchanged."""
    with torch.random.fork_rng(devices=range(torch.cuda.device_count())):
        torch.manual_seed(derive(seed, "adapters"))
        target: Any = model
        inject_adapter_in_model(_lora_config(rank, alpha), target)
    # weights are saved and loaded whole, adapters included
    if hasattr(target, "peft_config"):
        del target.peft_config


def save_adapter(model: WorldModel, rank: int, alpha: int, folder: Path) -> None:
    """The adapters alone, as `peft` reads them; nothing where there are none."""
    found = {name: tensor for name, tensor in model.state_dict().items() if "lora_" in name}
    if not found:
        return
    named = {f"base_model.model.{name.replace('.default', '')}": x.contiguous() for name, x in found.items()}
    save_file(named, folder / "adapter_model.safetensors", metadata={"format": "pt"})
    _lora_config(rank, alpha).save_pretrained(str(folder))


def save_tokenizer(model: WorldModel, folder: Path) -> None:
    model.text_encoder.tokenizer.save_pretrained(folder)


def _lora_config(rank: int, alpha: int) -> LoraConfig:
    return LoraConfig(r=rank, lora_alpha=alpha, target_modules=list(TARGETS), bias="none")
