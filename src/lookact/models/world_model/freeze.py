"""Which parts of a world model learn, and low-rank adapters on its experts."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from peft import LoraConfig, inject_adapter_in_model
from safetensors.torch import save_file

from lookact.errors import ConfigError
from lookact.models.world_model.experts import EXPERTS, TARGETS
from lookact.models.world_model.model import WorldModel
from lookact.seeding import derive

OWNERS = {
    "vq": "tokens",
    "reader": "reader",
    "vision": "vision",
    "understanding": "understanding",
    "place_understanding": "understanding",
    "blind": "understanding",
    "actions": "action",
    "critic": "action",
}
"""First part of a parameter's name to whose it is; all others but attention's are the generation expert's."""


@dataclass(frozen=True)
class Freeze:
    """What does not learn. The tokens of frames never do: they are what is foreseen."""

    vision_encoder: bool = False
    gen_expert: bool = False
    """And with it the memory."""
    act_expert_only: bool = False
    """Nothing but the action expert and the critic learns."""
    gen_expert_only: bool = False
    """Nothing but the generation expert and the memory learns."""

    def __post_init__(self) -> None:
        if self.gen_expert_only and (self.act_expert_only or self.gen_expert):
            raise ConfigError(
                "train_gen_expert_only leaves nothing else to learn: drop freeze_gen_expert and train_act_expert_only"
            )

    def learns(self, owner: str) -> bool:
        """Whether parameters of this owner learn."""
        if owner in ("tokens", "reader"):
            return False
        if self.act_expert_only or self.gen_expert_only:
            return owner == ("action" if self.act_expert_only else "generation")
        held = {"vision": self.vision_encoder, "generation": self.gen_expert}
        return not held.get(owner, False)


def freeze(world: WorldModel, how: Freeze) -> None:
    """Let exactly those parameters learn that `how` leaves; under adapters, the experts' own linears never do."""
    adapted = any("lora_" in name for name, _ in world.named_parameters())
    for name, parameter in world.named_parameters():
        held = adapted and name.startswith("attention.blocks") and "lora_" not in name
        parameter.requires_grad_(how.learns(owner_of(name)) and not held)


def owner_of(name: str) -> str:
    """Whose parameter this is: tokens, reader, vision, or an expert's."""
    first = name.split(".")[0]
    if first == "attention":
        return next(expert for expert in EXPERTS if f".{expert}." in name)
    return OWNERS.get(first, "generation")


def adapt(world: WorldModel, *, rank: int, alpha: int, seed: int) -> None:
    """Put low-rank adapters (arXiv:2106.09685) on the experts' attention; they change nothing yet."""
    config = LoraConfig(r=rank, lora_alpha=alpha, target_modules=list(TARGETS), bias="none")
    with torch.random.fork_rng(devices=range(torch.cuda.device_count())):
        torch.manual_seed(derive(seed, "adapters"))
        model: Any = world
        inject_adapter_in_model(config, model)
    # its weights are kept and read whole, adapters included: whoever saves it need not know of them
    if hasattr(model, "peft_config"):
        del model.peft_config


def save_adapter(world: WorldModel, rank: int, alpha: int, folder: Path) -> None:
    """The adapters alone, as `peft` reads them; nothing where there are none."""
    found = {name: tensor for name, tensor in world.state_dict().items() if "lora_" in name}
    if not found:
        return
    named = {f"base_model.model.{name.replace('.default', '')}": x.contiguous() for name, x in found.items()}
    save_file(named, folder / "adapter_model.safetensors", metadata={"format": "pt"})
    LoraConfig(r=rank, lora_alpha=alpha, target_modules=list(TARGETS), bias="none").save_pretrained(str(folder))
