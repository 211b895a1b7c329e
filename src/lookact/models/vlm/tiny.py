"""Tiny Qwen3-VL checkpoints, made on the spot: the default that every chat recipe can train on a laptop.

The folder it writes has the layout of a Hugging Face snapshot, so that the same code loads it and the 8B model.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterable
from dataclasses import dataclass
from itertools import chain
from pathlib import Path
from typing import Any

import torch
from tokenizers import AddedToken, Regex, Tokenizer, decoders, models, pre_tokenizers, trainers
from torch import nn
from transformers import GenerationConfig, PreTrainedTokenizerFast, Qwen3VLConfig, Qwen3VLForConditionalGeneration
from transformers.models.qwen2_vl.image_processing_pil_qwen2_vl import Qwen2VLImageProcessorPil

from lookact.errors import ConfigError
from lookact.models.vlm.loading import save_image_processor
from lookact.seeding import torch_rng
from lookact.text.chat import CHAT_TEMPLATE, SPECIAL_TOKENS

NUMBER = r"-?\d+(?:\.\d+)?"
"""A number is a piece of its own; all that stands between two numbers may become one piece."""
ROLES = ("system\n", "user\n", "assistant\n")
SENTENCE_END = r"[.?!](?!\d) ?"
"""No piece runs on into the next sentence, so that one sentence is always the same piece."""
PATCH, MERGE, FRAMES, HEAD = 16, 2, 2, 32


@dataclass(frozen=True)
class TinySpec:
    """Sizes of the tiny model; the defaults have about 0.8M parameters."""

    hidden: int = 128
    layers: int = 2
    heads: int = 4
    key_heads: int = 2
    vision_hidden: int = 64
    vision_depth: int = 2
    image_size: int = 96
    """Largest side of a square image in pixels, a multiple of 32: one token per 32x32."""
    vocabulary: int = 768
    piece_length: int = 40
    """Longest piece in bytes, so that no whole prompt becomes one token."""
    context: int = 8192


TINY = TinySpec()


def make_tiny(folder: Path | str, *, corpus: Iterable[str], spec: TinySpec = TINY, seed: int = 0) -> Path:
    """Write a fresh tiny Qwen3-VL checkpoint; `corpus` holds the texts its tokenizer learns its pieces from."""
    if spec.image_size % (PATCH * MERGE):
        raise ConfigError(f"image_size {spec.image_size} is not a multiple of {PATCH * MERGE}: choose 64, 96 or 128")
    folder = Path(folder)
    folder.mkdir(parents=True, exist_ok=True)
    tokenizer = train_tokenizer(corpus, spec)
    tokenizer.save_pretrained(folder)
    save_image_processor(image_processor(spec), folder)
    model = build_model(tokenizer, spec, seed)
    model.save_pretrained(folder)
    return folder


def train_tokenizer(corpus: Iterable[str], spec: TinySpec) -> PreTrainedTokenizerFast:
    """A byte-level BPE whose pieces may span words and JSON keys, with Qwen's special tokens after them."""
    core = Tokenizer(models.BPE())
    core.pre_tokenizer = pre_tokenizers.Sequence(
        [
            pre_tokenizers.Split(Regex(NUMBER), behavior="isolated"),
            pre_tokenizers.Split(Regex(SENTENCE_END), behavior="merged_with_previous"),
            pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False),
        ]
    )
    core.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(
        vocab_size=spec.vocabulary - len(SPECIAL_TOKENS),
        max_token_length=spec.piece_length,
        initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
        show_progress=False,
    )
    # special tokens are cut out first: no piece may swallow a part of one
    special = re.compile("|".join(map(re.escape, SPECIAL_TOKENS)))
    texts = chain(ROLES * 64, corpus)
    core.train_from_iterator((part for text in texts for part in special.split(text) if part), trainer)
    core.add_special_tokens([AddedToken(token, special=True, normalized=False) for token in SPECIAL_TOKENS])
    return PreTrainedTokenizerFast(
        tokenizer_object=core,
        eos_token="<|im_end|>",
        pad_token="<|endoftext|>",
        chat_template=CHAT_TEMPLATE,
        model_max_length=spec.context,
        clean_up_tokenization_spaces=False,
    )


def image_processor(spec: TinySpec) -> Qwen2VLImageProcessorPil:
    """Qwen3-VL's image processor with a pixel budget of the largest image."""
    half = [0.5, 0.5, 0.5]
    return Qwen2VLImageProcessorPil(
        size={"shortest_edge": (PATCH * MERGE) ** 2, "longest_edge": spec.image_size**2},
        patch_size=PATCH,
        temporal_patch_size=FRAMES,
        merge_size=MERGE,
        image_mean=half,
        image_std=half,
    )


def build_model(tokenizer: Any, spec: TinySpec, seed: int) -> Qwen3VLForConditionalGeneration:
    """The model of `spec` with weights drawn from `seed` alone."""
    model = Qwen3VLForConditionalGeneration(model_config(tokenizer, spec)).eval()
    initialise(model, torch_rng(seed, "tiny"))
    model.generation_config = GenerationConfig(
        eos_token_id=tokenizer.eos_token_id, pad_token_id=tokenizer.pad_token_id, do_sample=True
    )
    return model


def model_config(tokenizer: Any, spec: TinySpec) -> Qwen3VLConfig:
    """Qwen3-VL's configuration at the sizes of `spec`."""
    token = tokenizer.convert_tokens_to_ids
    rope = {"rope_type": "default", "rope_theta": 1e4, "mrope_section": [6, 5, 5], "mrope_interleaved": True}
    text = {
        "vocab_size": len(tokenizer),
        "hidden_size": spec.hidden,
        "intermediate_size": 2 * spec.hidden,
        "num_hidden_layers": spec.layers,
        "num_attention_heads": spec.heads,
        "num_key_value_heads": spec.key_heads,
        "head_dim": HEAD,
        "max_position_embeddings": spec.context,
        "rope_parameters": rope,
    }
    vision = {
        "depth": spec.vision_depth,
        "hidden_size": spec.vision_hidden,
        "intermediate_size": 2 * spec.vision_hidden,
        "num_heads": max(1, spec.vision_hidden // HEAD),
        "patch_size": PATCH,
        "spatial_merge_size": MERGE,
        "temporal_patch_size": FRAMES,
        "out_hidden_size": spec.hidden,
        # one learned position per patch of the largest image: nothing to interpolate there
        "num_position_embeddings": (spec.image_size // PATCH) ** 2,
        "deepstack_visual_indexes": [0],
    }
    return Qwen3VLConfig(
        text_config=text,
        vision_config=vision,
        image_token_id=token("<|image_pad|>"),
        video_token_id=token("<|video_pad|>"),
        vision_start_token_id=token("<|vision_start|>"),
        vision_end_token_id=token("<|vision_end|>"),
        tie_word_embeddings=True,
        dtype="float32",
    )


@torch.no_grad()
def initialise(model: Qwen3VLForConditionalGeneration, generator: torch.Generator) -> None:
    """Weights of standard deviation 1/sqrt(fan in): at the usual 0.02 a model this small hardly learns from images."""
    for module in model.modules():
        if isinstance(module, nn.Linear | nn.Conv3d):
            module.weight.normal_(0.0, 1.0 / math.sqrt(module.weight[0].numel()), generator=generator)
            if module.bias is not None:
                module.bias.zero_()
    # after the linears, since the output layer is the embedding
    model.get_input_embeddings().weight.normal_(
        0.0, 1.0 / math.sqrt(model.config.text_config.hidden_size), generator=generator
    )
    # as loud as the patches: smaller, and it takes several times the steps to learn where in a picture a thing is
    model.model.visual.pos_embed.weight.normal_(0.0, 1.0, generator=generator)
