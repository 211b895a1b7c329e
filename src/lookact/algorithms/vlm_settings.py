"""Settings that the recipes of vision-language models share; no torch."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Literal

from lookact.config import setting
from lookact.models.vlm.sources import TINY


@dataclass(frozen=True)
class Model:
    """Which checkpoint, and how it is held."""

    source: str = setting(
        TINY, help="tiny, general-tiny (lookact pretrain), a folder, or a name such as Qwen/Qwen3-VL-8B-Instruct"
    )
    family: Literal["qwen3-vl", "qwen3-vl-moe", "qwen2.5-vl", "smolvlm", "internvl", "gemma3"] = setting(
        "qwen3-vl", help="architecture of the tiny model; a checkpoint has its own"
    )
    hidden: int = setting(128, help="width of the tiny model", least=32)
    layers: int = setting(2, help="layers of the tiny model", least=1)
    vision_hidden: int = setting(64, help="width of the tiny vision tower", least=32)
    vision_depth: int = setting(2, help="layers of the tiny vision tower", least=1)
    dtype: Literal["float32", "bfloat16"] = setting("float32", help="bfloat16 pays on GPUs only")
    device: str = setting("cpu", help="cpu, cuda or cuda:N")
    attention: Literal["sdpa", "eager", "flash_attention_2"] = setting("sdpa", help="attention kernel")
    lora_rank: int = setting(0, help="0 trains every weight", least=0)
    lora_alpha: int | None = setting(None, help="LoRA scale times rank; none: twice the rank", least=1)
    lora_dropout: float = setting(
        0.0, help="LoRA dropout in SFT; RL scores tokens as they were sampled", least=0, below=1
    )
    lora_targets: tuple[str, ...] = setting(
        ("q_proj", "k_proj", "v_proj", "o_proj", "gate_proj", "up_proj", "down_proj"), help="linears that LoRA adapts"
    )
    rslora: bool = setting(False, help="rank-stabilised LoRA: alpha over the root of the rank (arXiv:2312.03732)")
    quantise: Literal["nf4"] | None = setting(None, help="nf4 holds frozen weights in 4 bits; needs lora_rank")
    max_pixels: int | None = setting(None, help="largest image in pixels; one token per 32x32", least=1024)
    gradient_checkpointing: bool = setting(False, help="trade a third more compute for far less memory")


QWEN3_VL_8B = Model(
    source="Qwen/Qwen3-VL-8B-Instruct",
    dtype="bfloat16",
    device="cuda",
    attention="flash_attention_2",
    lora_rank=32,
    gradient_checkpointing=True,
    max_pixels=640 * 480,
)
QWEN3_VL_4B = replace(QWEN3_VL_8B, source="Qwen/Qwen3-VL-4B-Instruct")
QWEN3_VL_2B = replace(QWEN3_VL_8B, source="Qwen/Qwen3-VL-2B-Instruct")


@dataclass(frozen=True)
class VisionPretraining:
    """Auxiliary dense pretraining of the vision encoder: patch labels and inverse depth."""

    rooms: int = setting(0, help="rooms that labelled images are rendered in; 0 for a pretrained encoder", least=0)
    epochs: int = setting(4, help="passes over the images", least=1)


@dataclass(frozen=True)
class SFT:
    """Supervised fine-tuning on an expert's demonstrations, before RL."""

    demonstrations: int = setting(2000, help="demonstrated episodes; 0 starts RL from the model as it is", least=0)
    noise: float = setting(
        0.15, help="share of expert moves replaced by random ones, so that recovery is seen", least=0, most=1
    )
    epochs: int = setting(3, help="passes over the demonstrations", least=1)
    batch_size: int = setting(16, help="episodes a gradient step", least=1)
    lr: float = setting(1e-3, help="peak learning rate", above=0)


@dataclass(frozen=True)
class RaySettings:
    """Rollouts by workers on Ray."""

    workers: int = setting(0, help="rollout workers; 0: the learner samples itself, without Ray", least=0)
    address: str = setting("", help="a running cluster, such as auto or HOST:6379; empty: one is started here")
    episodes_per_task: int = setting(16, help="episodes that a worker runs as one batch", least=1)
    cpus: float = setting(1.0, help="cores of a worker", above=0)
    gpus: float = setting(0.0, help="GPUs of a worker; 0 samples on the CPU", least=0)
    timeout_s: float = setting(1800.0, help="seconds a batch may take before its worker is replaced", above=0)
    staleness: int = setting(
        0, help="updates that rollouts may lag behind; 1 collects for the next step during the update", least=0, most=1
    )
