"""Settings that the recipes of chat models share."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from lookact.config import setting
from lookact.models.vlm.sources import TINY


@dataclass(frozen=True)
class Model:
    """Which checkpoint, and how it is held."""

    source: str = setting(TINY, help="'tiny', a checkpoint folder, or a name such as Qwen/Qwen3-VL-8B-Instruct")
    hidden: int = setting(128, help="width of the tiny model", least=32)
    layers: int = setting(2, help="layers of the tiny model", least=1)
    vision_hidden: int = setting(64, help="width of the tiny vision tower", least=32)
    vision_depth: int = setting(2, help="layers of the tiny vision tower", least=1)
    dtype: Literal["float32", "bfloat16"] = setting("float32", help="bfloat16 pays on GPUs only")
    device: str = setting("cpu", help="cpu, cuda or cuda:N")
    attention: Literal["sdpa", "eager", "flash_attention_2"] = setting("sdpa", help="attention kernel")
    lora_rank: int = setting(0, help="0 trains every weight", least=0)
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


@dataclass(frozen=True)
class WarmStart:
    """What a model learns before any reward; a pretrained one needs no lessons in seeing."""

    look_rooms: int = setting(0, help="rooms to look into for the lessons in seeing; 0: the model can see", least=0)
    look_epochs: int = setting(4, help="passes over the looks", least=1)
    demos: int = setting(2000, help="demonstrated episodes; 0 starts RL from the model as it is", least=0)
    noise: float = setting(
        0.15, help="share of moves replaced by random ones, so that recovery is seen", least=0, most=1
    )
    epochs: int = setting(3, help="passes over the demonstrations", least=1)
    rows: int = setting(16, help="episodes a learning step", least=1)
    lr: float = setting(1e-3, help="peak learning rate", above=0)


@dataclass(frozen=True)
class RaySettings:
    """Acting by workers on Ray."""

    workers: int = setting(0, help="processes that act; 0: the learner acts itself, without Ray", least=0)
    address: str = setting("", help="a running cluster, such as auto or HOST:6379; empty: one is started here")
    chunk: int = setting(16, help="plans handed out at a time, which a worker runs as one batch", least=1)
    cpus: float = setting(1.0, help="cores of a worker", above=0)
    gpus: float = setting(0.0, help="GPUs of a worker; 0 acts on the CPU", least=0)
    patience: float = setting(1800.0, help="seconds a chunk may take before its worker is replaced", above=0)
    staleness: int = setting(
        0, help="updates that acting may lag behind; 1 acts for the next step while this one learns", least=0, most=1
    )
