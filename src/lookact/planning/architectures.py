"""Sizes of published models, so that a plan needs no download; a folder with a config.json of its own works too.

The numbers are those of the checkpoints' config.json on the Hub, and do not change: a checkpoint's shapes are its own.
"""

from __future__ import annotations

import copy
from pathlib import Path
from typing import Any, ClassVar

from transformers import AutoConfig, Dinov2Config, Qwen3VLConfig

from lookact.algorithms.vlm_settings import Model
from lookact.errors import ConfigError, DataError
from lookact.models.vlm.loading import resolve
from lookact.models.vlm.sources import TINY
from lookact.models.vlm.tiny import TinySpec, model_config

QWEN3_VL = {
    "2B": {"hidden": 2048, "intermediate": 6144, "layers": 28, "heads": 16, "tied": True},
    "4B": {"hidden": 2560, "intermediate": 9728, "layers": 36, "heads": 32, "tied": True},
    "8B": {"hidden": 4096, "intermediate": 12_288, "layers": 36, "heads": 32, "tied": False},
}
SMALL_TOWER = {"hidden": 1024, "intermediate": 4096, "depth": 24, "deepstack": [5, 11, 17]}
LARGE_TOWER = {"hidden": 1152, "intermediate": 4304, "depth": 27, "deepstack": [8, 16, 24]}
DINOV2 = {"small": (384, 12, 6), "base": (768, 12, 12), "large": (1024, 24, 16)}
"""Width, layers and heads; giant has another feed-forward layer."""
IMAGE_PAD, END = 151_655, 151_645


def qwen3_vl(size: str) -> Qwen3VLConfig:
    """The configuration of Qwen3-VL-2B, -4B or -8B, Instruct and Thinking alike."""
    text, tower = QWEN3_VL[size], LARGE_TOWER if size == "8B" else SMALL_TOWER
    rope = {"rope_type": "default", "rope_theta": 5e6, "mrope_section": [24, 20, 20], "mrope_interleaved": True}
    return Qwen3VLConfig(
        text_config={
            "vocab_size": 151_936,
            "hidden_size": text["hidden"],
            "intermediate_size": text["intermediate"],
            "num_hidden_layers": text["layers"],
            "num_attention_heads": text["heads"],
            "num_key_value_heads": 8,
            "head_dim": 128,
            "max_position_embeddings": 262_144,
            "rope_parameters": rope,
        },
        vision_config={
            "depth": tower["depth"],
            "hidden_size": tower["hidden"],
            "intermediate_size": tower["intermediate"],
            "num_heads": 16,
            "patch_size": 16,
            "spatial_merge_size": 2,
            "temporal_patch_size": 2,
            "out_hidden_size": text["hidden"],
            "num_position_embeddings": 2304,
            "deepstack_visual_indexes": tower["deepstack"],
        },
        image_token_id=IMAGE_PAD,
        video_token_id=151_656,
        vision_start_token_id=151_652,
        vision_end_token_id=151_653,
        tie_word_embeddings=text["tied"],
    )


def chat_config(model: Model, *, image_size: int) -> Any:
    """The configuration of the model that a token recipe's settings name."""
    if model.source == TINY:
        return tiny_config(model, image_size=image_size)
    if not Path(model.source).exists():
        for size in QWEN3_VL:
            if model.source.startswith(f"Qwen/Qwen3-VL-{size}-"):
                return qwen3_vl(size)
        known = ", ".join(f"Qwen/Qwen3-VL-{size}-Instruct" for size in QWEN3_VL)
        raise ConfigError(f"the sizes of {model.source} are not known here: name one of {known}, or a folder")
    base, _ = resolve(model.source)
    try:
        config = AutoConfig.from_pretrained(base, trust_remote_code=False, local_files_only=True)
    except (OSError, ValueError, KeyError) as error:
        raise DataError(f"cannot read the config.json of {base}: {str(error).splitlines()[0]}") from error
    if not config.model_type.startswith("qwen3_vl"):
        raise ConfigError(f"{base} is a {config.model_type} model: choose a Qwen3-VL checkpoint")
    return config


def tiny_config(model: Model, *, image_size: int) -> Any:
    """The tiny model's, whose vocabulary is its full size."""
    spec = TinySpec(
        hidden=model.hidden,
        layers=model.layers,
        vision_hidden=model.vision_hidden,
        vision_depth=model.vision_depth,
        image_size=image_size,
    )
    return model_config(Vocabulary(spec.vocabulary, end=spec.vocabulary - 1), spec)


class Vocabulary:
    """Stands in for a tokenizer that a plan does not have: its size and the id that ends a reply."""

    added_tokens_decoder: ClassVar[dict[int, Any]] = {}
    chat_template = None

    def __init__(self, size: int, *, end: int) -> None:
        self.size, self.end = size, end

    def __len__(self) -> int:
        return self.size

    def convert_tokens_to_ids(self, token: str) -> int:
        return self.end if token == "<|im_end|>" else self.end - 1


def with_depth(config: Any, text: int, vision: int) -> Any:
    """The same model with fewer alike layers; as many levels of the tower join the text."""
    smaller = copy.deepcopy(config)
    levels = len(config.vision_config.deepstack_visual_indexes)
    smaller.text_config.num_hidden_layers, smaller.vision_config.depth = text, vision
    if vision != config.vision_config.depth:
        smaller.vision_config.deepstack_visual_indexes = list(range(levels))
    return smaller


def dinov2(source: str) -> Dinov2Config:
    """The configuration of a published DINOv2, or of a folder's."""
    if Path(source, "config.json").exists():
        return Dinov2Config.from_pretrained(source)
    size = source.rpartition("-")[2]
    if size not in DINOV2:
        known = ", ".join(f"facebook/dinov2-{size}" for size in DINOV2)
        raise ConfigError(f"the sizes of {source} are not known here: name one of {known}, or a folder")
    hidden, layers, heads = DINOV2[size]
    return Dinov2Config(
        hidden_size=hidden, num_hidden_layers=layers, num_attention_heads=heads, image_size=518, patch_size=14
    )
