"""Control policies made, written and read back: one folder holds all that is needed, no download included."""

from __future__ import annotations

import json
from collections.abc import Iterable
from dataclasses import asdict
from pathlib import Path
from typing import Any

from safetensors import SafetensorError
from safetensors.torch import load_file
from transformers import AutoTokenizer, BertConfig, Dinov2Config

from lookact.errors import DataError
from lookact.models.vla.encoders import (
    TextEncoder,
    TextSpec,
    VisionEncoder,
    VisionSpec,
    open_bert,
    open_dinov2,
    set_finetune,
    tiny_bert,
    tiny_dinov2,
    train_wordpiece,
)
from lookact.models.vla.policy import VLA, PolicySpec
from lookact.models.vlm.loading import first_line
from lookact.models.vlm.sources import TINY

SPEC, WEIGHTS = "vla.json", "model.safetensors"
VISION, TEXT = "vision_config", "text_config"


def make_vla(
    policy: PolicySpec, vision: VisionSpec, text: TextSpec, *, corpus: Iterable[str], seed: int, device: str = "cpu"
) -> VLA:
    """A fresh policy; `corpus` holds the texts that a tiny tokenizer learns its pieces from."""
    vision_config = text_config = None
    if vision.source == TINY:
        vision_config = tiny_dinov2(
            hidden=vision.hidden, layers=vision.layers, image_size=vision.image_size, patch=vision.patch
        )
    tokenizer = train_wordpiece(corpus, text) if text.source == TINY else _open_tokenizer(text.source)
    if text.source == TINY:
        text_config = tiny_bert(hidden=text.hidden, layers=text.layers, vocabulary=len(tokenizer), length=text.length)
    dinov2, bert = open_dinov2(vision.source, vision_config, seed), open_bert(text.source, text_config, seed)
    return _assemble(policy, vision, text, dinov2, bert, tokenizer, seed).to(device)


def save_encoders(vla: VLA, folder: Path) -> None:
    """What a policy needs beside its weights: its sizes, its encoders' configs, its tokenizer."""
    vision, text = vla.vision_encoder, vla.text_encoder
    specs = {"policy": asdict(vla.spec), "vision": asdict(vision.spec), "text": asdict(text.spec)}
    (folder / SPEC).write_text(json.dumps(specs, indent=2) + "\n", encoding="utf-8")
    vision.encoder.config.save_pretrained(folder / VISION)
    text.encoder.config.save_pretrained(folder / TEXT)
    text.tokenizer.save_pretrained(folder)


def load_vla(folder: Path, *, device: str = "cpu") -> VLA:
    """The policy that a checkpoint holds."""
    if not (folder / SPEC).is_file() or not (folder / WEIGHTS).is_file():
        raise DataError(f"{folder} is no vla-ppo checkpoint: it needs {SPEC} and {WEIGHTS}")
    try:
        specs = json.loads((folder / SPEC).read_text(encoding="utf-8"))
        policy = read_policy_spec(specs["policy"])
        vision, text = VisionSpec(**specs["vision"]), TextSpec(**specs["text"])
        dinov2 = open_dinov2(TINY, Dinov2Config.from_pretrained(folder / VISION), 0)
        bert = open_bert(TINY, BertConfig.from_pretrained(folder / TEXT), 0)
        vla = _assemble(policy, vision, text, dinov2, bert, _open_tokenizer(str(folder)), 0)
        vla.load_state_dict(load_file(folder / WEIGHTS))
    except (OSError, ValueError, TypeError, KeyError, RuntimeError, SafetensorError) as error:
        raise DataError(f"{folder} does not hold a whole policy: {first_line(error)}") from error
    return vla.to(device)


def read_policy_spec(told: dict[str, Any]) -> PolicySpec:
    """A policy's spec from JSON, which has lists for tuples."""
    bounds = told.get("action_bounds")
    bounds = None if bounds is None else tuple(tuple(map(float, bound)) for bound in bounds)
    return PolicySpec(**told | {"cameras": tuple(told["cameras"]), "action_bounds": bounds})


def _assemble(
    policy: PolicySpec, vision: VisionSpec, text: TextSpec, dinov2: Any, bert: Any, tokenizer: Any, seed: int
) -> VLA:
    text_encoder = TextEncoder(text, set_finetune(bert, text.finetune, rank=text.lora_rank, seed=seed), tokenizer)
    dinov2 = set_finetune(dinov2, vision.finetune, rank=vision.lora_rank, seed=seed)
    vision_encoder = VisionEncoder(vision, dinov2, policy.cameras, text_width=text_encoder.width, seed=seed)
    return VLA(policy, vision_encoder, text_encoder, seed=seed)


def _open_tokenizer(source: str) -> Any:
    try:
        return AutoTokenizer.from_pretrained(source, trust_remote_code=False)
    except (OSError, ValueError) as error:
        raise DataError(f"cannot load the tokenizer of {source}: {first_line(error)}") from error
