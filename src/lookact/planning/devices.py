"""GPUs by their data sheets, and the seconds that a learning step takes on them by the cost model of `costs.py`."""

from __future__ import annotations

import re
from dataclasses import dataclass, replace

from lookact.config.values import unknown
from lookact.errors import ConfigError
from lookact.planning.costs import ModelShape, Rates, Seconds, Work, rollout_seconds, update_seconds

BFLOAT16, FLOAT32 = 2, 4
GPUS_PER_MACHINE = 8
GIB = 2**30


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


GPUS = {
    "L4": Device(flops=121e12, memory=24 * GIB, bandwidth=0.3e12, link=32e9, network=3e9),
    "RTX4090": Device(flops=165e12, memory=24 * GIB, bandwidth=1.008e12, link=32e9, network=3e9),
    "L40S": Device(flops=362e12, memory=48 * GIB, bandwidth=0.864e12, link=32e9, network=12.5e9),
    "A100": Device(flops=312e12, memory=80 * GIB, bandwidth=2.04e12, link=300e9, network=25e9),
    "H100": Device(flops=989e12, memory=80 * GIB, bandwidth=3.35e12, link=450e9, network=50e9),
    "H200": Device(flops=989e12, memory=141e9, bandwidth=4.8e12, link=450e9, network=50e9),
}


def parse_gpus(text: str) -> tuple[str, int]:
    """A GPU's name and how many, from words such as H100 or H100x8."""
    found = re.fullmatch(r"(.+?)(?:x(\d+))?", text)
    name, count = (found[1].upper(), int(found[2] or 1)) if found else (text, 1)
    if name not in GPUS:
        raise unknown("GPU", name, GPUS, otherwise="those known are")
    if count < 1:
        raise ConfigError(f"--gpu {text}: at least one GPU is needed, such as {name}x1")
    return name, count


@dataclass(frozen=True)
class Layout:
    """Who learns and who samples, and what an update passes through."""

    trained: int
    """Parameters that learn."""
    sharded: bool = False
    learners: int = 1
    """GPUs that learn."""
    samplers: int = 0
    """GPUs that only sample; 0: learners sample in turn."""
    token_budget: int = 32_768
    """Padded tokens a micro-batch."""
    passes: float = 4.0
    """Of an update, the forward pass as one."""
    waves: int = 1
    """Batches of episodes that a GPU samples one after the other."""
    weight_bytes: float = BFLOAT16
    """Of a parameter, as a decode step reads it."""


def predict(shape: ModelShape, layout: Layout, device: Device, work: Work, *, env_seconds: float) -> Seconds:
    """Seconds of one learning step."""
    sampled, learned = work.over(layout.samplers or layout.learners), work.over(layout.learners)
    rates = gpu_rates(shape, device, weight_bytes=layout.weight_bytes, env_seconds=env_seconds)
    # every decode step also reads its wave's KV cache so far, half of the last on average: over all waves, as of one
    cache = 0.5 * sampled.rounds * shape.cache_bytes(sampled.prompt_tokens + sampled.sampled_tokens, BFLOAT16)
    sampled = replace(sampled, rounds=sampled.rounds * layout.waves)
    return Seconds(
        rollout=rollout_seconds(shape, sampled, rates) + cache / (device.bandwidth * device.bandwidth_share),
        environment=sampled.env_steps * env_seconds,
        update=update_seconds(shape, learned, rates, passes=layout.passes),
        communication=communication_seconds(shape, layout, device, learned),
    )


def gpu_rates(shape: ModelShape, device: Device, *, weight_bytes: float, env_seconds: float) -> Rates:
    """A decode step reads all weights; the rest is arithmetic."""
    reached = device.flops * device.mfu
    decode_step_seconds = shape.parameters * weight_bytes / (device.bandwidth * device.bandwidth_share)
    return Rates(reached, reached, decode_step_seconds, reached, env_seconds)


def communication_seconds(shape: ModelShape, layout: Layout, device: Device, own: Work) -> float:
    """Summing gradients, gathering shards for every pass of every micro-batch, and sending weights to samplers."""
    # once a machine, however many samplers are there
    seconds = layout.trained * BFLOAT16 / (device.network * GPUS_PER_MACHINE) if layout.samplers else 0.0
    if layout.learners == 1:
        return seconds
    link = device.link if layout.learners <= GPUS_PER_MACHINE else device.network
    seconds += 2.0 * layout.trained * FLOAT32 / link
    if layout.sharded:
        batches = max(1.0, (own.prompt_tokens + own.sampled_tokens) / layout.token_budget)
        seconds += (3.0 * batches + 1.0) * shape.parameters * BFLOAT16 / link
    return seconds
