"""Cost model of a learning step of a Qwen3-VL policy: tokens, images, environment steps, FLOPs, bytes, seconds.

Counts follow from the model's shape and a plan of the episodes. Seconds are counts over rates: a GPU's come from its
data sheet and the share of it that such code reaches (MFU); `benchmarks/scale_costs.py` fits them to measured runs.
"""

from __future__ import annotations

from dataclasses import dataclass, fields
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


@dataclass(frozen=True)
class Work:
    """What one learning step does, over all processes."""

    episodes: float
    env_steps: float
    images: float
    image_tokens: float
    """Of one image."""
    prompt_tokens: float
    """Fed, visual ones included."""
    sampled_tokens: float
    prompt_pairs: float
    """(query, key) pairs of attention in prefill, with the KV cache of earlier turns."""
    sampled_pairs: float
    rounds: float
    """Sequential decode steps: the longest reply of every turn."""

    def over(self, workers: float) -> Work:
        """One worker's share, if episodes are shared out evenly; rounds are as many for each."""
        shares = {f.name: getattr(self, f.name) / workers for f in fields(self)}
        return Work(**{**shares, "image_tokens": self.image_tokens, "rounds": self.rounds})


def planned_work(
    *, episodes: int, turns: float, image_tokens: float, text_tokens: float, reply_tokens: float, images: float = 1.0
) -> Work:
    """Episodes that are all alike: in every turn so many images, tokens of text and tokens of reply."""
    prompt, steps = images * image_tokens + text_tokens, episodes * turns
    turn = prompt + reply_tokens
    # the past of turn t is t turns long; inside a block every token looks at itself and those before
    past = episodes * turns * (turns - 1) / 2 * turn
    return Work(
        episodes=episodes,
        env_steps=steps,
        images=steps * images,
        image_tokens=image_tokens,
        prompt_tokens=steps * prompt,
        sampled_tokens=steps * reply_tokens,
        prompt_pairs=past * prompt + steps * prompt * (prompt + 1) / 2,
        sampled_pairs=past * reply_tokens + steps * (reply_tokens * prompt + reply_tokens * (reply_tokens + 1) / 2),
        rounds=turns * reply_tokens,
    )


def prefill_flops(shape: ModelShape, work: Work) -> float:
    """Forward FLOPs of images and prompts in the rollout."""
    return shape.vision_flops(work.images, work.image_tokens) + shape.text_flops(work.prompt_tokens, work.prompt_pairs)


def decode_flops(shape: ModelShape, work: Work) -> float:
    """Forward FLOPs of sampled tokens."""
    return shape.text_flops(work.sampled_tokens, work.sampled_pairs) + shape.output_flops(work.sampled_tokens)


def forward_flops(shape: ModelShape, work: Work) -> float:
    """Forward FLOPs of every token in one pass, which is a third of an update's."""
    return prefill_flops(shape, work) + decode_flops(shape, work)


@dataclass(frozen=True)
class Rates:
    """How fast one device does each kind of work."""

    prefill: float
    """FLOP/s on prompts and images."""
    decode: float
    """FLOP/s on sampled tokens."""
    decode_step_seconds: float
    """Of one decode step, however small the batch: weights are read, kernels started."""
    update: float
    """FLOP/s of forward and backward passes."""
    env_seconds: float
    """Of one environment step, on one core."""


@dataclass(frozen=True)
class Seconds:
    """One learning step's time."""

    rollout: float
    environment: float
    """Within the rollout's."""
    update: float
    communication: float
    """Communication: gradients between learners, weights to samplers."""

    @property
    def total(self) -> float:
        """One after the other."""
        return self.rollout + self.update + self.communication

    @property
    def overlapped(self) -> float:
        """The next step's rollout during this step's update."""
        return max(self.rollout, self.update + self.communication)


def rollout_seconds(shape: ModelShape, work: Work, rates: Rates) -> float:
    """The rollout on one device."""
    computed = prefill_flops(shape, work) / rates.prefill + decode_flops(shape, work) / rates.decode
    return computed + work.rounds * rates.decode_step_seconds + work.env_steps * rates.env_seconds


def update_seconds(shape: ModelShape, work: Work, rates: Rates, *, passes: float = 3.0) -> float:
    """The update on one device; `passes` counts the forward pass as 1, and 4 with activation checkpointing."""
    return passes * forward_flops(shape, work) / rates.update
