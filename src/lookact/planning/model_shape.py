"""Sizes of a Qwen3-VL model, and the arithmetic and the bytes that follow from them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True)
class ModelShape:
    """What costs depend on; names as in the checkpoint's config."""

    layers: int
    hidden: int
    heads: int
    kv_heads: int
    head_dim: int
    intermediate: int
    vocabulary: int
    tied: bool
    """Input and output embeddings are one matrix."""
    vision_layers: int
    vision_hidden: int
    vision_intermediate: int
    patch_values: int
    """Numbers in a patch: frames x channels x height x width."""
    merge: int
    """Patches a side that make one token."""
    deepstack: int
    """Levels of the tower that join the text layers."""
    vision_places: int = 2304
    """Learned positions of the tower."""

    @property
    def layer_weights(self) -> int:
        """Matrix entries of one text layer."""
        attention = 2 * self.heads * self.head_dim + 2 * self.kv_heads * self.head_dim
        return self.hidden * (attention + 3 * self.intermediate)

    @property
    def vision_weights(self) -> int:
        """Matrix entries that every patch meets: the kernel and the layers."""
        layer = 4 * self.vision_hidden**2 + 2 * self.vision_hidden * self.vision_intermediate
        return self.patch_values * self.vision_hidden + self.vision_layers * layer

    @property
    def merger_weights(self) -> int:
        """Matrix entries that every visual token meets, over the merger and the deepstack levels."""
        wide = self.vision_hidden * self.merge**2
        return (1 + self.deepstack) * (wide * wide + wide * self.hidden)

    @property
    def parameters(self) -> int:
        """All weights but norms and biases, which make up less than a thousandth."""
        embeddings = self.vocabulary * self.hidden * (1 if self.tied else 2)
        places = self.vision_places * self.vision_hidden
        return self.layers * self.layer_weights + self.vision_weights + self.merger_weights + embeddings + places

    def text_flops(self, tokens: float, pairs: float) -> float:
        """Forward FLOPs of all layers over `tokens`; `pairs` are (query, key) pairs that attention looks at."""
        return 2 * self.layers * (self.layer_weights * tokens + 2 * self.heads * self.head_dim * pairs)

    def vision_flops(self, images: float, image_tokens: float) -> float:
        """Forward FLOPs of the tower over images of `image_tokens` each."""
        patches = image_tokens * self.merge**2
        attention = 2 * self.vision_layers * self.vision_hidden * patches**2
        return 2 * images * (self.vision_weights * patches + self.merger_weights * image_tokens + attention)

    def output_flops(self, units: float) -> float:
        """Forward FLOPs of the output layer, at the units that are scored or sampled alone."""
        return 2.0 * self.vocabulary * self.hidden * units

    def cache_bytes(self, tokens: float, width: int) -> float:
        """Keys and values of this many tokens, in numbers of `width` bytes."""
        return 2.0 * self.layers * self.kv_heads * self.head_dim * tokens * width

    def adapter_parameters(self, rank: int) -> int:
        """Low-rank adapters on all seven matrices of every text layer."""
        query, key = self.heads * self.head_dim, self.kv_heads * self.head_dim
        sides = 2 * (self.hidden + query) + 2 * (self.hidden + key) + 3 * (self.hidden + self.intermediate)
        return self.layers * rank * sides


def shape_of(config: Any) -> ModelShape:
    """The shape of a Hugging Face Qwen3-VL config."""
    text, vision = config.text_config, config.vision_config
    return ModelShape(
        layers=text.num_hidden_layers,
        hidden=text.hidden_size,
        heads=text.num_attention_heads,
        kv_heads=text.num_key_value_heads,
        head_dim=text.head_dim,
        intermediate=text.intermediate_size,
        vocabulary=text.vocab_size,
        tied=bool(config.tie_word_embeddings),
        vision_layers=vision.depth,
        vision_hidden=vision.hidden_size,
        vision_intermediate=vision.intermediate_size,
        patch_values=vision.temporal_patch_size * vision.in_channels * vision.patch_size**2,
        merge=vision.spatial_merge_size,
        deepstack=len(vision.deepstack_visual_indexes),
        vision_places=vision.num_position_embeddings,
    )


QWEN3_VL_8B = ModelShape(
    layers=36,
    hidden=4096,
    heads=32,
    kv_heads=8,
    head_dim=128,
    intermediate=12_288,
    vocabulary=151_936,
    tied=False,
    vision_layers=27,
    vision_hidden=1152,
    vision_intermediate=4304,
    patch_values=2 * 3 * 16 * 16,
    merge=2,
    deepstack=3,
)
