"""Tiny checkpoints of every family, made on the spot: the default that every chat recipe can train on a laptop.

The folder it writes has the layout of a Hugging Face snapshot, so that the same code loads it and the 8B model.
"""

from __future__ import annotations

import json
import math
import re
from collections.abc import Iterable
from itertools import chain
from pathlib import Path
from typing import Any

import torch
from tokenizers import AddedToken, Regex, Tokenizer, decoders, models, normalizers, pre_tokenizers, trainers
from torch import nn
from transformers import AutoModelForImageTextToText, GenerationConfig, PreTrainedTokenizerFast

from lookact.errors import ConfigError
from lookact.models.vlm.families import FAMILIES
from lookact.models.vlm.families.family import MERGE, PATCH, Family, write_files
from lookact.models.vlm.families.family import TinySpec as TinySpec
from lookact.seeding import torch_rng

NUMBER = r"-?\d+(?:\.\d+)?"
"""A number is a piece of its own; all that stands between two numbers may become one piece."""
ROLES = ("system\n", "user\n", "assistant\n")
SENTENCE_END = r"[.?!](?!\d) ?"
"""No piece runs on into the next sentence, so that one sentence is always the same piece."""
BYTES = tuple(f"<0x{byte:02X}>" for byte in range(256))
"""What a SentencePiece tokenizer falls back to."""

TINY = TinySpec()


def make_tiny(folder: Path | str, *, corpus: Iterable[str], spec: TinySpec = TINY, seed: int = 0) -> Path:
    """Write a fresh tiny checkpoint; `corpus` holds the texts its tokenizer learns its pieces from."""
    if spec.image_size % (PATCH * MERGE):
        raise ConfigError(f"image_size {spec.image_size} is not a multiple of {PATCH * MERGE}: choose 64, 96 or 128")
    folder = Path(folder)
    folder.mkdir(parents=True, exist_ok=True)
    tokenizer = train_tokenizer(corpus, spec)
    tokenizer.save_pretrained(folder)
    model, family = build_model(tokenizer, spec, seed), FAMILIES[spec.family]
    assert family.tiny_images is not None
    model.save_pretrained(folder)
    write_files(family, model.config, family.tiny_images(spec), folder)
    return folder


def train_tokenizer(corpus: Iterable[str], spec: TinySpec) -> PreTrainedTokenizerFast:
    """A BPE whose pieces may span words and JSON keys, with the family's special tokens after them."""
    family = FAMILIES[spec.family]
    bytewise = pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)
    core = Tokenizer(models.BPE(byte_fallback=family.sentencepiece))
    splits = [
        pre_tokenizers.Split(Regex(NUMBER), behavior="isolated"),
        pre_tokenizers.Split(Regex(SENTENCE_END), behavior="merged_with_previous"),
    ]
    core.pre_tokenizer = pre_tokenizers.Sequence(splits if family.sentencepiece else [*splits, bytewise])
    core.decoder = decoders.ByteLevel()
    if family.sentencepiece:
        core.normalizer = normalizers.Replace(" ", "▁")
        core.decoder = decoders.Sequence([decoders.Replace("▁", " "), decoders.ByteFallback(), decoders.Fuse()])
    alphabet = [chr(code) for code in range(33, 127)] if family.sentencepiece else bytewise.alphabet()
    trainer = trainers.BpeTrainer(
        vocab_size=spec.vocabulary - len(family.special_tokens) - len(BYTES) * family.sentencepiece,
        max_token_length=spec.piece_length,
        initial_alphabet=alphabet,
        show_progress=False,
    )
    # special tokens are cut out first: no piece may swallow a part of one
    special = re.compile("|".join(map(re.escape, family.special_tokens)))
    texts = chain(ROLES * 64, corpus)
    core.train_from_iterator((part for text in texts for part in special.split(text) if part), trainer)
    if family.sentencepiece:
        core = with_bytes(core)
    core.add_special_tokens([AddedToken(token, special=True, normalized=False) for token in family.special_tokens])
    return PreTrainedTokenizerFast(
        tokenizer_object=core,
        chat_template=family.template,
        model_max_length=spec.context,
        clean_up_tokenization_spaces=False,
        **family.roles,
    )


def with_bytes(core: Tokenizer) -> Tokenizer:
    """The tokenizer with a piece for every byte, for what its alphabet lacks."""
    told = json.loads(core.to_str())
    vocabulary = told["model"]["vocab"]
    vocabulary |= {piece: len(vocabulary) + index for index, piece in enumerate(BYTES)}
    return Tokenizer.from_str(json.dumps(told))


def build_model(tokenizer: Any, spec: TinySpec, seed: int) -> Any:
    """The model of `spec` with weights drawn from `seed` alone."""
    family = FAMILIES[spec.family]
    model = AutoModelForImageTextToText.from_config(model_config(tokenizer, spec)).eval()
    initialise(model, torch_rng(seed, "tiny"))
    # as checkpoints do: a reply ends with its turn, and a text with the tokenizer's own end
    ends = list(dict.fromkeys([tokenizer.convert_tokens_to_ids(family.end), tokenizer.eos_token_id]))
    model.generation_config = GenerationConfig(
        eos_token_id=ends[0] if len(ends) == 1 else ends, pad_token_id=tokenizer.pad_token_id, do_sample=True
    )
    return model


def model_config(tokenizer: Any, spec: TinySpec) -> Any:
    """The family's configuration at the sizes of `spec`."""
    family: Family = FAMILIES[spec.family]
    assert family.tiny_config is not None
    return family.tiny_config(tokenizer.convert_tokens_to_ids, len(tokenizer), spec)


@torch.no_grad()
def initialise(model: Any, generator: torch.Generator) -> None:
    """Weights of standard deviation 1/sqrt(fan in): at the usual 0.02 a model this small hardly learns from images."""
    for module in model.modules():
        if isinstance(module, nn.Linear | nn.Conv2d | nn.Conv3d):
            module.weight.normal_(0.0, 1.0 / math.sqrt(module.weight[0].numel()), generator=generator)
            if module.bias is not None:
                module.bias.zero_()
    # after the linears, since the output layer is the embedding
    words = model.get_input_embeddings().weight
    words.normal_(0.0, 1.0 / math.sqrt(model.config.text_config.hidden_size), generator=generator)
    drawn = {id(words)} | {id(m.weight) for m in model.modules() if isinstance(m, nn.Linear | nn.Conv2d | nn.Conv3d)}
    for name, weight in model.named_parameters():
        if weight.dim() > 1 and id(weight) not in drawn:
            # positions as loud as the patches: smaller, and it takes several times the steps to learn where in a
            # picture a thing is
            scale = 1.0 if "pos" in name else 1.0 / math.sqrt(weight.shape[-1])
            weight.normal_(0.0, scale, generator=generator)
