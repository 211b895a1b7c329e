"""Encoders of control policies: DINOv2 with attention pooling for frames, WordPiece and BERT for instructions.

Attention pooling has learned queries: each gives what it found and where in the frame (soft-argmax), so that hundreds
of patches become a handful of tokens, cheap to keep and to fuse. Encoders are tiny, from a config, or pretrained, by
name or folder; frozen, with LoRA, or fully trained.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

import torch
from tokenizers import Tokenizer, models, normalizers, pre_tokenizers, processors
from torch import Tensor, nn
from torch.nn import functional
from transformers import AutoConfig, BertConfig, BertModel, Dinov2Config, Dinov2Model, PreTrainedTokenizerFast

from lookact.errors import ConfigError, DataError
from lookact.models.vla.folded_dinov2 import FoldedDinov2, foldable
from lookact.models.vlm.loading import LoraSpec, add_lora, first_line
from lookact.seeding import derive, torch_rng

Finetune = Literal["frozen", "lora", "full"]
"""Fine-tuning mode of an encoder: no weights, low-rank adapters, or all."""
MEAN, DEVIATION = (0.485, 0.456, 0.406), (0.229, 0.224, 0.225)
"""Of colours in 0..1, as DINOv2 was trained with."""
SPECIAL = ("[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]")
TARGETS = ("q_proj", "k_proj", "v_proj", "o_proj", "query", "key", "value")
"""Attention's linears, by DINOv2's and by BERT's names."""
NO_DROPOUT = {"hidden_dropout_prob": 0.0, "attention_probs_dropout_prob": 0.0}
"""With dropout the scores of one and the same action would vary from call to call."""


@dataclass(frozen=True)
class VisionSpec:
    """The image encoder; sizes are the tiny one's."""

    source: str = "tiny"
    image_size: int = 64
    """Pixels a side that frames are brought to; for a pretrained DINOv2 a multiple of 14."""
    patch: int = 8
    hidden: int = 64
    layers: int = 2
    pool_queries: int = 8
    """Tokens a camera."""
    finetune: Finetune = "full"
    lora_rank: int = 8


@dataclass(frozen=True)
class TextSpec:
    """The text encoder; sizes are the tiny one's."""

    source: str = "tiny"
    hidden: int = 64
    layers: int = 1
    vocabulary: int = 512
    length: int = 32
    """Tokens an instruction is cut or padded to."""
    finetune: Finetune = "full"
    lora_rank: int = 8


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
    with torch.no_grad():
        places = model.embeddings.position_embeddings.weight
        places.copy_(sinusoids(*places.shape))
    return model


def sinusoids(length: int, width: int) -> Tensor:
    """(length, width) position embeddings of norm 1 whose products depend on the distance of two positions alone.

    Drawn at random instead, "the word before" would have to be learned anew at each position, and a tiny encoder reads
    too few sentences for that.
    """
    rates = torch.exp(-math.log(length) * torch.arange(width // 2) / (width // 2))
    angles = torch.arange(length).unsqueeze(1) * rates
    waves = torch.cat([angles.sin(), angles.cos()], dim=1)
    return waves / math.sqrt(width // 2)


def set_finetune(model: Any, mode: Finetune, *, rank: int, seed: int) -> Any:
    """`model` with only those weights trainable that `mode` says; fresh adapters are drawn from `seed`."""
    if mode == "full":
        return model
    model.requires_grad_(False)
    if mode == "frozen":
        return model
    present = tuple(name for name in TARGETS if any(path.endswith(name) for path, _ in model.named_modules()))
    with torch.random.fork_rng(devices=range(torch.cuda.device_count())):
        torch.manual_seed(derive(seed, "adapters"))
        return add_lora(model, LoraSpec(rank=rank, alpha=2 * rank, targets=present))


class Weights:
    """A module's parameters without a walk over its submodules, which would be felt at every step."""

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
        # of the patches' scale, so that position shows as clearly as content
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


class AttentionPool(nn.Module):
    """Attention pooling by k learned queries: (b, p, d) patches -> (b, k, d + 2), content and soft-argmax position.

    The instruction (b, e) moves each query: what is looked for is what is asked for. Positions are in -1..1, across and
    down.
    """

    grid: Tensor

    def __init__(self, width: int, count: int, side: int, text_width: int) -> None:
        super().__init__()
        self.queries = nn.Parameter(torch.zeros(count, width))
        self.condition = nn.Linear(text_width, count * width, bias=False)
        self.keys, self.values = nn.Linear(width, width), nn.Linear(width, width)
        line = (torch.arange(side) + 0.5) / side * 2 - 1
        down, across = torch.meshgrid(line, line, indexing="ij")
        self.register_buffer("grid", torch.stack([across, down], dim=-1).reshape(-1, 2), persistent=False)

    def forward(self, patches: Tensor, text: Tensor) -> Tensor:
        # keys and values of a few queries, not of hundreds of patches: the same products in another order
        queries = (self.queries + self.condition(text).unflatten(-1, self.queries.shape)) / patches.shape[-1] ** 0.5
        asked, shift = queries @ self.keys.weight, queries @ self.keys.bias
        # bmm, since matmul rounds otherwise where a gradient is wanted
        scores = torch.bmm(asked, patches.mT) + shift.unsqueeze(-1)
        weights = scores.softmax(dim=-1)
        return torch.cat([self.values(weights @ patches), weights @ self.grid], dim=-1)


class VisionEncoder(nn.Module):
    """DINOv2 for all cameras, attention pooling of its own for each."""

    colours: Tensor

    def __init__(self, spec: VisionSpec, encoder: Any, cameras: tuple[str, ...], *, text_width: int, seed: int) -> None:
        super().__init__()
        self.spec, self.cameras, self.encoder = spec, cameras, encoder
        self.width, patch = int(encoder.config.hidden_size), int(encoder.config.patch_size)
        side, rest = divmod(spec.image_size, patch)
        if rest:
            raise ConfigError(
                f"an image of {spec.image_size} pixels does not fall into patches of {patch}: choose a multiple"
            )
        self.pools = nn.ModuleDict(
            {camera: AttentionPool(self.width, spec.pool_queries, side, text_width) for camera in cameras}
        )
        generator = torch_rng(seed, "glances")
        initialise(self.pools, generator)
        for pool in self.pools.values():
            assert isinstance(pool, AttentionPool)
            nn.init.normal_(pool.queries, std=2.0, generator=generator)
        self.register_buffer("colours", torch.tensor([MEAN, DEVIATION]), persistent=False)
        self._weights, self._pool_weights = Weights(encoder), Weights(self.pools)
        self._folded_encoder: FoldedDinov2 | None = None
        self._folded_state: Any = None

    @property
    def frozen(self) -> bool:
        """Whether no weight of the encoder is trained: the features of a frame never change."""
        return self._weights.frozen

    @property
    def pools_frozen(self) -> bool:
        return self._pool_weights.frozen

    def features(self, images: Mapping[str, Tensor], text: Tensor | None = None) -> dict[str, Tensor]:
        """Frames (b, h, w, 3) uint8 -> (b, k, d) a camera, unchanged by training: patches, or pooled tokens.

        Pooled tokens where pooling is frozen and `text` (b, e), which must not change either, is given.
        """
        patches = self._patches(images)
        if text is not None and self.frozen and self.pools_frozen:
            return {camera: self.pools[camera](found, text) for camera, found in patches.items()}
        return patches

    def forward(self, images: Mapping[str, Tensor], text: Tensor) -> dict[str, Tensor]:
        """Frames (b, h, w, 3), or their `features`, and instructions (b, e) -> (b, queries, d + 2) tokens a camera."""
        frames = {camera: images[camera] for camera in self.cameras if images[camera].dtype == torch.uint8}
        found = {camera: images[camera] for camera in self.cameras if camera not in frames} | self._patches(frames)
        return {
            camera: tokens if tokens.shape[-1] == self.width + 2 else self.pools[camera](tokens, text)
            for camera, tokens in ((camera, found[camera]) for camera in self.cameras)
        }

    def _patches(self, images: Mapping[str, Tensor]) -> dict[str, Tensor]:
        """(b, p, d) a camera; all go through the encoder together."""
        if not images:
            return {}
        frames, size = list(images.values()), self.spec.image_size
        folded = self._folded() if all(each.shape[1:3] == (size, size) for each in frames) and self.frozen else None
        if folded is not None:
            states = folded(torch.cat(frames))
        else:
            pixels = torch.cat([self._prepare(each) for each in frames])
            states = self.encoder(pixel_values=pixels).last_hidden_state[:, 1:]
        return dict(zip(images, states.chunk(len(images))))

    def _folded(self) -> FoldedDinov2 | None:
        """The encoder on raw frames, folded anew whenever a weight has changed; None: of a kind that does not fold."""
        state = self._weights.state()
        if state != self._folded_state:
            known = foldable(self.encoder)
            self._folded_encoder = FoldedDinov2(self.encoder, self.colours, self.spec.image_size) if known else None
            self._folded_state = state
        return self._folded_encoder

    def _prepare(self, frames: Tensor) -> Tensor:
        """(b, h, w, 3) uint8 -> (b, 3, s, s) colours as DINOv2 knows them."""
        mean, deviation = self.colours
        pixels: Tensor = ((frames.float() / 255 - mean) / deviation).permute(0, 3, 1, 2)
        size = (self.spec.image_size, self.spec.image_size)
        if pixels.shape[-2:] == size:
            return pixels
        pixels = functional.interpolate(pixels, size, mode="bicubic", antialias=True, align_corners=False)
        return pixels


def train_wordpiece(corpus: Iterable[str], spec: TextSpec) -> PreTrainedTokenizerFast:
    """A BERT tokenizer of `corpus`'s words, the most frequent first; a word it never saw is one `[UNK]`.

    Letters would each bring an embedding that nothing has trained; word dropout trains that of `[UNK]`.
    """
    normalizer, splitter = normalizers.BertNormalizer(lowercase=True), pre_tokenizers.BertPreTokenizer()
    found = Counter(word for text in corpus for word, _ in splitter.pre_tokenize_str(normalizer.normalize_str(text)))
    letters = [chr(code) for code in range(33, 127)]
    # by hand: the library's trainer breaks ties at random, so that no two processes would number words alike
    words = sorted(found, key=lambda word: (-found[word], word))
    pieces = dict.fromkeys([*SPECIAL, *letters, *words])
    vocabulary = {piece: index for index, piece in enumerate(list(pieces)[: spec.vocabulary])}
    core = Tokenizer(models.WordPiece(vocabulary, unk_token="[UNK]"))
    core.normalizer, core.pre_tokenizer = normalizer, splitter
    ends = [(token, core.token_to_id(token)) for token in ("[CLS]", "[SEP]")]
    core.post_processor = processors.TemplateProcessing(single="[CLS] $A [SEP]", special_tokens=ends)
    return PreTrainedTokenizerFast(
        tokenizer_object=core,
        pad_token="[PAD]",
        unk_token="[UNK]",
        cls_token="[CLS]",
        sep_token="[SEP]",
        mask_token="[MASK]",
        model_max_length=spec.length,
    )


class TextEncoder(nn.Module):
    """BERT: token ids (b, n) -> (b, d), the mean of its last states. A frozen one encodes each instruction once."""

    def __init__(self, spec: TextSpec, encoder: Any, tokenizer: Any) -> None:
        super().__init__()
        self.spec, self.encoder, self.tokenizer = spec, encoder, tokenizer
        self.width = int(encoder.config.hidden_size)
        self._weights = Weights(encoder)
        self._known: dict[bytes, Tensor] = {}
        self.register_load_state_dict_post_hook(lambda module, _: module._known.clear())  # type: ignore[no-untyped-call]

    @property
    def frozen(self) -> bool:
        return self._weights.frozen

    def tokenize(self, texts: Sequence[str]) -> Tensor:
        """(b, n) ids, padded to the encoder's length."""
        ids = self.tokenizer(list(texts), padding="max_length", truncation=True, max_length=self.spec.length)
        return torch.tensor(ids["input_ids"], dtype=torch.long)

    def forward(self, ids: Tensor) -> Tensor:
        if not self.frozen:
            self._known.clear()
            return self._encode(ids)
        keys = [row.tobytes() for row in ids.cpu().numpy()]
        fresh = {key: row for row, key in enumerate(keys) if key not in self._known}
        # one by one: a row of a larger batch is rounded otherwise, and a resumed run meets texts in another order
        self._known |= {key: self._encode(ids[row : row + 1])[0].detach() for key, row in fresh.items()}
        return torch.stack([self._known[key] for key in keys]).to(ids.device)

    def _encode(self, ids: Tensor) -> Tensor:
        counts = ids != self.tokenizer.pad_token_id
        # columns that are padding in every row cost as much as words
        longest = int(counts.sum(dim=1).max())
        ids, counts = ids[:, :longest], counts[:, :longest]
        states = self.encoder(input_ids=ids, attention_mask=counts).last_hidden_state
        weights = counts.unsqueeze(-1).to(states.dtype)
        mean: Tensor = (states * weights).sum(dim=1) / weights.sum(dim=1)
        return mean
