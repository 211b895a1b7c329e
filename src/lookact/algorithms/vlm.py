"""The chat model of the token recipes: a tiny one made on the spot, or a real one by name."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path

import torch

from lookact.algorithms.parity import check_parity
from lookact.algorithms.vlm_settings import Model
from lookact.data.demonstrations import ChatTemplate
from lookact.models.vlm.families import OTHER
from lookact.models.vlm.general import GENERAL, find_general
from lookact.models.vlm.loading import LoraSpec, load_chat
from lookact.models.vlm.policy import ChatVLM
from lookact.models.vlm.sources import TINY
from lookact.models.vlm.tiny import TinySpec, make_tiny
from lookact.seeding import derive
from lookact.training.atomic_io import TEMPORARY, place
from lookact.training.distributed import barrier, is_main


def open_chat(
    model: Model,
    folder: Path,
    *,
    corpus: Callable[[], Sequence[str]],
    image_size: int,
    seed: int,
    value_head: bool = False,
) -> ChatVLM:
    """The model that `model` names; a tiny one is written to `folder` first, unless it is there already."""
    source = model.source
    if source == TINY:
        source = str(folder)
        if is_main() and not (folder / "config.json").exists():
            spec = TinySpec(
                hidden=model.hidden,
                layers=model.layers,
                vision_hidden=model.vision_hidden,
                vision_depth=model.vision_depth,
                image_size=image_size,
                family=model.family,
            )
            # under its own name only when it is whole: a run may be killed at any moment
            place(make_tiny(folder.with_name(TEMPORARY + folder.name), corpus=corpus(), spec=spec, seed=seed), folder)
        barrier()
    elif source == GENERAL:
        source = str(find_general())
    # fresh adapters are drawn from the global stream: here it is a stream of their own, the same in every process
    with torch.random.fork_rng(devices=range(torch.cuda.device_count())):
        torch.manual_seed(derive(seed, "adapters"))
        chat = load_chat(
            source,
            dtype=model.dtype,
            device=model.device,
            attention=model.attention,
            lora=lora_of(model),
            quantise=model.quantise,
            max_pixels=model.max_pixels,
            gradient_checkpointing=model.gradient_checkpointing,
            value_head=value_head,
        )
    if chat.family is OTHER:
        check_parity(chat, source)
    return chat


def lora_of(model: Model) -> LoraSpec | None:
    """The adapters that `model` asks for."""
    if not model.lora_rank:
        return None
    return LoraSpec(
        rank=model.lora_rank,
        alpha=model.lora_alpha,
        dropout=model.lora_dropout,
        targets=model.lora_targets,
        rslora=model.rslora,
    )


def template_of(chat: ChatVLM, *, system: str = "") -> ChatTemplate:
    """How this model writes conversations down."""
    return ChatTemplate(chat.spelling, chat.encode_prompt, chat.end_id, system)
