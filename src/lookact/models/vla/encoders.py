"""DINOv2 and BERT for control policies: tiny from a config, pretrained by name or folder; frozen, LoRA or full."""

from __future__ import annotations

import math
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Literal

import torch
from torch import nn
from transformers import AutoConfig, BertConfig, BertModel, Dinov2Config, Dinov2Model

from lookact.errors import ConfigError, DataError
from lookact.models.vlm.loading import LoraSpec, add_lora, first_line
from lookact.seeding import derive, torch_rng

Hold = Literal["frozen", "lora", "full"]
"""Which weights of an encoder learn: none, low-rank adapters, or all."""
TARGETS = ("q_proj", "k_proj", "v_proj", "o_proj", "query", "key", "value")
"""Attention's linears, by DINOv2's and by BERT's names."""
NO_DROPOUT = {"hidden_dropout_prob": 0.0, "attention_probs_dropout_prob": 0.0}
"""With dropout the scores of one and the same action would vary from call to call."""


def tiny_dinov2(*, hidden: int, layers: int, image_size: int, patch: int) -> Dinov2Config:
    """DINOv2's configuration at a size that learns on a CPU."""
    return Dinov2Config(
        hidden_size=hidden,
        num_hidden_layers=layers,
        num_attention_heads=max(1, hidden // 32),
        mlp_ratio=2,
        image_size=image_size,
        patch_size=patch,
        use_mask_token=False,
    )


def tiny_bert(*, hidden: int, layers: int, vocabulary: int, length: int) -> BertConfig:
    """BERT's configuration at a size that learns on a CPU."""
    return BertConfig(
        vocab_size=vocabulary,
        hidden_size=hidden,
        num_hidden_layers=layers,
        num_attention_heads=max(1, hidden // 32),
        intermediate_size=2 * hidden,
        max_position_embeddings=length,
        **NO_DROPOUT,
    )


def open_dinov2(source: str, config: Dinov2Config | None, seed: int) -> Any:
    """A tiny DINOv2 of `config` with weights from `seed`, or the pretrained one that `source` names."""
    if config is None:
        return _pretrained(Dinov2Model, "dinov2", source)
    model = Dinov2Model(config)
    initialise(model, torch_rng(seed, "dinov2"))
    return model


def open_bert(source: str, config: BertConfig | None, seed: int) -> Any:
    """A tiny BERT of `config` with weights from `seed`, or the pretrained one that `source` names."""
    if config is None:
        return _pretrained(BertModel, "bert", source, add_pooling_layer=False)
    model = BertModel(config, add_pooling_layer=False)
    initialise(model, torch_rng(seed, "bert"))
    return model


def hold(model: Any, how: Hold, *, rank: int, seed: int) -> Any:
    """`model` with only those weights learning that `how` says; fresh adapters are drawn from `seed`."""
    if how == "full":
        return model
    model.requires_grad_(False)
    if how == "frozen":
        return model
    present = tuple(name for name in TARGETS if any(path.endswith(name) for path, _ in model.named_modules()))
    with torch.random.fork_rng(devices=range(torch.cuda.device_count())):
        torch.manual_seed(derive(seed, "adapters"))
        return add_lora(model, LoraSpec(rank=rank, alpha=2 * rank, targets=present))


class Weights:
    """A module's weights, looked through without a walk over its parts: asked at every step, that walk tells."""

    def __init__(self, module: nn.Module) -> None:
        self._held = [part._parameters for part in module.modules() if part._parameters]

    def __iter__(self) -> Iterator[nn.Parameter]:
        return (weight for held in self._held for weight in held.values() if weight is not None)

    @property
    def frozen(self) -> bool:
        """Whether none of them learns."""
        return not any(weight.requires_grad for weight in self)

    def state(self) -> list[tuple[int, int]]:
        """Equal to what it was before only if no weight was written or moved in between."""
        return [(weight.data_ptr(), weight._version) for weight in self]


@torch.no_grad()
def initialise(model: nn.Module, generator: torch.Generator) -> None:
    """Weights of standard deviation 1/sqrt(fan in): at the usual 0.02 a model this small hardly learns."""
    for module in model.modules():
        if isinstance(module, nn.Linear | nn.Conv2d):
            module.weight.normal_(0.0, 1.0 / math.sqrt(module.weight[0].numel()), generator=generator)
            if module.bias is not None:
                module.bias.zero_()
        elif isinstance(module, nn.Embedding):
            module.weight.normal_(0.0, 1.0 / math.sqrt(module.embedding_dim), generator=generator)
    for name, parameter in model.named_parameters():
        # as loud as the patches, so that where a thing is shows as clearly as what it is
        if name.endswith(("position_embeddings", "cls_token")):
            parameter.normal_(0.0, 1.0, generator=generator)


def _pretrained(kind: Any, family: str, source: str, **options: Any) -> Any:
    try:
        config = AutoConfig.from_pretrained(source, trust_remote_code=False)
        if config.model_type != family:
            raise ConfigError(f"{source} is a {config.model_type} model: choose a {family} checkpoint")
        return kind.from_pretrained(source, dtype=torch.float32, **NO_DROPOUT, **options)
    except (OSError, ValueError, KeyError) as error:
        where = "" if Path(source).exists() else "; give 'tiny', a folder that exists, or a name on the Hub"
        raise DataError(f"cannot load {source}: {first_line(error)}{where}") from error
