"""Memory and seconds of a learning step on many GPUs, by the cost model of `costs.py`.

Learners sample too, in turn, unless some GPUs only sample; each by one process, whose environments share a core.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from lookact.planning.costs import ModelShape, Rates, Seconds, Work, rollout_seconds, update_seconds

BFLOAT16, FLOAT32 = 2, 4
PASSES = 4.0
"""Of an update with activation checkpointing: forward, forward again, and backward as two."""


@dataclass(frozen=True)
class Device:
    """A GPU's data sheet, and the shares of it that training code of this kind reaches."""

    flops: float
    """bfloat16, without sparsity."""
    memory: float
    """Bytes."""
    bandwidth: float
    """Bytes/s of its memory."""
    link: float
    """Bytes/s to the GPUs of the same machine, one way."""
    network: float
    """Bytes/s of its share of the machine's network, one way."""
    mfu: float = 0.4
    """Model FLOPs utilisation."""
    bandwidth_share: float = 0.7
    """Of the memory's bandwidth."""


H100 = Device(flops=989e12, memory=80e9, bandwidth=3.35e12, link=450e9, network=50e9)
A100 = Device(flops=312e12, memory=80e9, bandwidth=2.04e12, link=300e9, network=25e9)
L40S = Device(flops=362e12, memory=48e9, bandwidth=0.864e12, link=32e9, network=12.5e9)


@dataclass(frozen=True)
class Setup:
    """How a model is trained."""

    kind: Literal["data", "shard"] = "data"
    lora_rank: int = 0
    """0 trains every weight: float32 weights and moments, arithmetic in bfloat16."""
    reference: bool = True
    token_budget: int = 32_768
    """Padded tokens a micro-batch."""
    learners: int = 1
    """GPUs that learn."""
    samplers: int = 0
    """GPUs that only sample; 0: learners sample in turn."""
    gpus_a_machine: int = 8


def trained_parameters(shape: ModelShape, setup: Setup) -> int:
    return shape.adapter_parameters(setup.lora_rank) if setup.lora_rank else shape.parameters


def held_bytes(shape: ModelShape, setup: Setup, work: Work) -> dict[str, float]:
    """Bytes that a GPU that learns holds, by what they are for; update and rollout take turns with the last two."""
    parts = setup.learners if setup.kind == "shard" else 1
    trained = trained_parameters(shape, setup)
    frozen = shape.parameters if setup.lora_rank else 0
    # adapters are whole on every GPU, whatever the rest is
    own = 1 if setup.lora_rank else parts
    needs_copy = setup.reference and not setup.lora_rank
    return {
        "weights": frozen * BFLOAT16 / parts + trained * FLOAT32 / own,
        "gradients": trained * FLOAT32 / own,
        "optimizer": 2.0 * trained * FLOAT32 / own,
        "reference": shape.parameters * BFLOAT16 / parts if needs_copy else 0.0,
        "update": activation_bytes(shape, setup.token_budget) + (_gathered(shape, setup) if parts > 1 else 0.0),
        "rollout": 0.0 if setup.samplers else cache_bytes(shape, work.over(setup.learners)) + _whole(shape, parts),
    }


def peak_bytes(held: dict[str, float]) -> float:
    """The most that is held at once."""
    always = sum(size for name, size in held.items() if name not in ("update", "rollout"))
    return always + max(held["update"], held["rollout"])


def activation_bytes(shape: ModelShape, tokens: int) -> float:
    """With checkpointing: every layer's input, and all that one layer makes, forward and backward."""
    kept = shape.layers * tokens * shape.hidden * BFLOAT16
    wide = 6 * shape.hidden + 2 * (shape.heads + 2 * shape.kv_heads) * shape.head_dim + 4 * shape.intermediate
    return kept + 2.0 * tokens * wide * BFLOAT16


def sampler_bytes(shape: ModelShape, setup: Setup, work: Work) -> float:
    """Bytes that a GPU that only samples holds."""
    return shape.parameters * BFLOAT16 + cache_bytes(shape, work.over(setup.samplers))


def cache_bytes(shape: ModelShape, work: Work) -> float:
    """Keys and values of a device's episodes at their end; buffers grow by half as much again."""
    return 1.5 * shape.cache_bytes(work.prompt_tokens + work.sampled_tokens, BFLOAT16)


def predict(shape: ModelShape, setup: Setup, device: Device, work: Work, *, env_seconds: float) -> Seconds:
    """Seconds of one learning step."""
    sampled, learned = work.over(setup.samplers or setup.learners), work.over(setup.learners)
    rates = gpu_rates(shape, device, env_seconds=env_seconds)
    # every decode step also reads the KV cache so far, half of the last on average
    cache = 0.5 * sampled.rounds * shape.cache_bytes(sampled.prompt_tokens + sampled.sampled_tokens, BFLOAT16)
    return Seconds(
        rollout=rollout_seconds(shape, sampled, rates) + cache / (device.bandwidth * device.bandwidth_share),
        environment=sampled.env_steps * env_seconds,
        update=update_seconds(shape, learned, rates, passes=PASSES),
        communication=communication_seconds(shape, setup, device, learned),
    )


def gpu_rates(shape: ModelShape, device: Device, *, env_seconds: float) -> Rates:
    """A decode step reads all weights; the rest is arithmetic."""
    reached = device.flops * device.mfu
    decode_step_seconds = shape.parameters * BFLOAT16 / (device.bandwidth * device.bandwidth_share)
    return Rates(reached, reached, decode_step_seconds, reached, env_seconds)


def communication_seconds(shape: ModelShape, setup: Setup, device: Device, own: Work) -> float:
    """Summing gradients, gathering shards for every pass of every micro-batch, and sending weights to samplers."""
    trained = trained_parameters(shape, setup)
    # once a machine, however many samplers are there
    seconds = trained * BFLOAT16 / (device.network * setup.gpus_a_machine) if setup.samplers else 0.0
    if setup.learners == 1:
        return seconds
    link = device.link if setup.learners <= setup.gpus_a_machine else device.network
    seconds += 2.0 * trained * FLOAT32 / link
    if setup.kind == "shard":
        batches = max(1.0, (own.prompt_tokens + own.sampled_tokens) / setup.token_budget)
        seconds += (3.0 * batches + 1.0) * shape.parameters * BFLOAT16 / link
    return seconds


def _whole(shape: ModelShape, parts: int) -> float:
    """Weights that are gathered for the rollout, where they are sharded."""
    return shape.parameters * BFLOAT16 if parts > 1 else 0.0


def _gathered(shape: ModelShape, setup: Setup) -> float:
    """What shards put together for a while: the widest part's weights, and all gradients until they are summed."""
    embeddings = 2.0 * shape.vocabulary * shape.hidden * BFLOAT16
    unsummed = 0.0 if setup.lora_rank else shape.parameters * BFLOAT16
    return embeddings + 2.0 * shape.layer_weights * BFLOAT16 + unsummed
