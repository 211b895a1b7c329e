"""The policy of vla-ppo: tiny encoders made on the spot, or real ones by name."""

from __future__ import annotations

from lookact.models.vla.checkpoint import make_vla
from lookact.models.vla.policy import VLA, PolicySpec
from lookact.models.vla.text import TextSpec
from lookact.models.vla.vision import VisionSpec
from lookact.recipes.vla_ppo.config import Model, World
from lookact.recipes.vla_ppo.task import make_corpus


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
