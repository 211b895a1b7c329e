"""The policy of vla-ppo: tiny encoders made on the spot, or real ones by name."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from lookact.models.vla import VLA, PolicySpec
from lookact.models.vla_store import make_vla
from lookact.models.vla_text import TextSpec
from lookact.models.vla_vision import VisionSpec
from lookact.recipes.vla_world import World, make_corpus
from lookact.train.config import setting


@dataclass(frozen=True)
class Vision:
    """DINOv2, and the glances that read its patches."""

    source: str = setting("tiny", help="'tiny', a folder, or a name such as facebook/dinov2-small")
    image_size: int = setting(64, help="pixels a side that frames are brought to; a multiple of the patch", least=8)
    patch: int = setting(8, help="pixels a side of the tiny encoder's patches; pretrained ones have 14", least=2)
    hidden: int = setting(64, help="width of the tiny encoder, a multiple of 32", least=32)
    layers: int = setting(2, help="layers of the tiny encoder", least=1)
    glances: int = setting(8, help="tokens that a camera's patches become", least=1)
    hold: Literal["frozen", "lora", "full"] = setting("full", help="what of the encoder learns; glances always do")
    lora_rank: int = setting(8, help="rank of the adapters", least=1)


@dataclass(frozen=True)
class Text:
    """BERT."""

    source: str = setting("tiny", help="'tiny', a folder, or a name such as google-bert/bert-base-uncased")
    hidden: int = setting(64, help="width of the tiny encoder, a multiple of 32", least=32)
    layers: int = setting(1, help="layers of the tiny encoder", least=1)
    length: int = setting(32, help="tokens an instruction is cut or padded to", least=4)
    hold: Literal["frozen", "lora", "full"] = setting("full", help="what of the encoder learns")
    lora_rank: int = setting(8, help="rank of the adapters", least=1)


@dataclass(frozen=True)
class Model:
    """What is fused, how, and how actions spread."""

    vision: Vision = Vision()
    text: Text = Text()
    width: int = setting(64, help="of the fusion transformer, a multiple of its heads", least=8)
    layers: int = setting(2, help="of the fusion transformer", least=1)
    heads: int = setting(4, help="of the fusion transformer", least=1)
    value_layers: int = setting(1, help="of the critic's own transformer", least=1)
    history: int = setting(5, help="last actions that are seen", least=0)
    chunk: int = setting(1, help="actions foretold at once; the first is taken, the others sharpen cloning", least=1)
    spread: Literal["fixed", "learned", "decay"] = setting("fixed", help="how the standard deviation of actions goes")
    std: float = setting(0.2, help="standard deviation of actions, at first or always", above=0, most=1)
    last_std: float = setting(0.05, help="where a decaying one ends", above=0, most=1)
    memory: int = setting(0, help="width of a GRU that carries on from step to step; 0: none", least=0)
    freeze: bool = setting(True, help="encoders stay as cloned while reward teaches: each frame is encoded once")
    device: str = setting("cpu", help="cpu, cuda or cuda:N")


def open_policy(model: Model, world: World, *, seed: int) -> VLA:
    """The policy as it is before any training."""
    policy = PolicySpec(
        cameras=tuple(world.cameras),
        state_size=world.state_size,
        action_size=world.action_size,
        history=model.history,
        chunk=model.chunk,
        width=model.width,
        layers=model.layers,
        heads=model.heads,
        value_layers=model.value_layers,
        spread=model.spread,
        std=model.std,
        last_std=model.last_std,
        memory=model.memory,
    )
    vision, text = model.vision, model.text
    eyes = VisionSpec(
        source=vision.source,
        image_size=vision.image_size,
        patch=vision.patch,
        hidden=vision.hidden,
        layers=vision.layers,
        glances=vision.glances,
        hold=vision.hold,
        lora_rank=vision.lora_rank,
    )
    words = TextSpec(
        source=text.source,
        hidden=text.hidden,
        layers=text.layers,
        length=text.length,
        hold=text.hold,
        lora_rank=text.lora_rank,
    )
    return make_vla(policy, eyes, words, corpus=make_corpus(world), seed=seed, device=model.device)
