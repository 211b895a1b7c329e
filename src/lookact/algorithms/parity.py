"""Parity of sampler and learner: how far log-probs as sampled are from log-probs as scored, over ways to sample."""

from __future__ import annotations

import tempfile
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from typing import Any, Literal

import numpy as np
import torch
from torch import Tensor

from lookact.data.packing import micro_batches, to_segments
from lookact.errors import ConfigError, LookActError, TokenMismatch
from lookact.models.vlm.families import OTHER
from lookact.models.vlm.loading import LoraSpec, first_line, load_chat, save_chat
from lookact.models.vlm.policy import ChatVLM
from lookact.ops.mismatch import mismatch_limits
from lookact.rollout.collect import collect
from lookact.rollout.samplers.hf import HFSampler
from lookact.rollout.samplers.settings import Sampling
from lookact.seeding import torch_rng
from lookact.types import EpisodeSpec, Observation

LIMIT = 1e-4
"""Nats that no token may be off by in float32."""
Weights = Literal["whole", "LoRA", "merged"]
"""Weights without adapters; adapters on both sides; a sampler with the adapters merged in, a learner that has them."""
TOKENS = 4096
"""Padded tokens that are scored at once."""


class Noise:
    """A chat environment of noise: ragged turns of two images, one, none, in sizes that are not the model's."""

    shapes = (((96, 96), (64, 96)), ((64, 64),), (), ((96, 64),))

    def reset(self, *, seed: int, options: Mapping[str, Any]) -> tuple[Observation, dict[str, Any]]:
        self.rng, self.turn, self.turns = np.random.default_rng(seed), 0, options["turns"]
        return self._look(), {}

    def step(self, action: Any) -> tuple[Observation, float, bool, bool, dict[str, Any]]:
        self.turn += 1
        return self._look(), 0.0, self.turn == self.turns, False, {}

    def close(self) -> None:
        pass

    def _look(self) -> Observation:
        shapes = self.shapes[self.turn % len(self.shapes)]
        images = {f"view{i}": self.rng.integers(0, 256, (*shape, 3), dtype=np.uint8) for i, shape in enumerate(shapes)}
        return Observation(text=f"Where is it?{' Look again.' * (self.turn % 3)}", images=images)


@dataclass(frozen=True)
class Gap:
    """One row of a certificate."""

    family: str
    sampler: str
    reuse: bool
    """Whether keys and values are kept across turns."""
    weights: Weights
    batch: int
    """Conversations sampled side by side."""
    tokens: int
    mean: float
    quantile: float
    """99.9% of the tokens are closer."""
    max: float


def measure(
    sampler: ChatVLM, learner: ChatVLM, *, reuse: bool, batch: int, conversations: int = 6, max_tokens: int = 12
) -> Tensor:
    """|Δ log p| (n,) of every token that `sampler` draws in conversations of noise, as `learner` scores it."""
    sampling = Sampling(max_tokens=max_tokens, min_action_tokens=1)
    actor = HFSampler(sampler, sampling, system="Be brief.", reuse=reuse)
    specs = [EpisodeSpec(f"noise{i}", i, i, options={"turns": 2 + i % 3}) for i in range(conversations)]
    with own_code(sampler), torch.no_grad():
        episodes = collect(specs, [Noise() for _ in range(batch)], actor)
        segments = [segment for episode in episodes for segment in to_segments(episode, loss_on="reply")]
        gaps = []
        for part in micro_batches(learner, segments, TOKENS):
            scores = learner.evaluate(part.inputs, **sampling.filters())
            gaps.append((scores.logprobs - part.logprobs)[part.mask].abs().float().cpu())
    return torch.cat(gaps)


@contextmanager
def own_code(chat: ChatVLM) -> Iterator[None]:
    """What the code of a model of no known family raises is told in one line; ours is ours to mend."""
    try:
        yield
    except Exception as error:
        if chat.family is not OTHER or isinstance(error, LookActError):
            raise
        raise ConfigError(
            f"a {chat.config.model_type} model, of no family known here, cannot hold a conversation with images: "
            f"{first_line(error)}: choose a model of docs/models.md"
        ) from error


def gaps_of(
    source: str, *, dtype: str = "float32", device: str = "cpu", batches: Sequence[int] = (1, 4), **sizes: int
) -> Iterator[Gap]:
    """The rows of a checkpoint's certificate; `sizes` are those of `measure`."""
    plain = load_chat(source, dtype=dtype, device=device)
    adapted = load_chat(source, dtype=dtype, device=device, lora=LoraSpec(rank=4))
    disturb(adapted)
    with tempfile.TemporaryDirectory() as folder:
        merged = load_chat(save_chat(adapted, folder, merge=True), dtype=dtype, device=device)
    pairs: dict[Weights, tuple[ChatVLM, ChatVLM]] = {
        "whole": (plain, plain),
        "LoRA": (adapted, adapted),
        "merged": (merged, adapted),
    }
    for weights, (sampler, learner) in pairs.items():
        # a family that nobody knows has no keys and values to keep
        for reuse in (False,) if plain.family is OTHER else (True, False):
            for batch in batches:
                gaps = measure(sampler, learner, reuse=reuse, batch=batch, **sizes)
                told = float(gaps.mean()), float(gaps.quantile(0.999)), float(gaps.max())
                yield Gap(plain.family.name, "hf", reuse, weights, batch, len(gaps), *told)


def disturb(chat: ChatVLM) -> None:
    """Adapters start as no change; here they get one that counts, the same each time."""
    generator = torch_rng(0, "adapters")
    for name, weight in chat.named_parameters():
        if ".lora_" in name:
            drawn = torch.randn(weight.shape, generator=generator)
            scale = 0.1 if ".lora_B" in name else weight.shape[-1] ** -0.5
            weight.data.copy_(scale * drawn.to(weight.device, weight.dtype))


def certificate(source: str, *, dtype: str = "float32", device: str = "cpu") -> dict[str, Any]:
    """The table of a checkpoint, and whether all of it is within the limits."""
    rows = list(gaps_of(source, dtype=dtype, device=device))
    limits = mismatch_limits(dtype)
    passes = all(row.max <= LIMIT if dtype == "float32" else row.mean <= limits.mean for row in rows)
    return {"dtype": dtype, "passes": passes, "rows": [asdict(row) for row in rows]}


def check_parity(chat: ChatVLM, source: str) -> None:
    """Refuse a model whose own generation and forward pass disagree: it can't be trained on what it samples."""
    gaps = measure(chat, chat, reuse=False, batch=1, conversations=1, max_tokens=6)
    limits = mismatch_limits(str(chat.output_weight.dtype).removeprefix("torch."))
    if not (float(gaps.mean()) <= limits.mean and float(gaps.quantile(0.999)) <= limits.token):
        raise TokenMismatch(
            f"{source} is a {chat.config.model_type} model, of no family known here, and scores its own replies "
            f"{float(gaps.max()):.2g} nats off: choose a model of docs/models.md"
        )
