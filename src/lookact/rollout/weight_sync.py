"""Weight sync: pushes the learner's weights to an engine and proves that they arrived."""

from __future__ import annotations

import math
import time
from collections.abc import Mapping, Sequence
from dataclasses import replace

import numpy as np
import torch
from torch import Tensor

from lookact.batch import to_device
from lookact.data.packing import collate, to_segments
from lookact.errors import StaleWeights
from lookact.models.vlm.policy import ChatVLM
from lookact.rollout.samplers.settings import Sampling
from lookact.rollout.samplers.vllm import VllmSampler
from lookact.seeding import derive, numpy_rng
from lookact.types import Episode, Observation, Turn

PROBE_ROWS = (-1, -2)
"""Keys that no environment's row has."""
PROBE_TURNS = 2


class WeightSync:
    """Loads weights into a sampler's engine, compares norms, and compares log-probs on a probe."""

    def __init__(self, sampler: VllmSampler, *, limit: float) -> None:
        self.sampler, self.limit = sampler, limit
        self._norms: dict[str, float] = {}

    def push(self, state: Mapping[str, Tensor], version: int) -> dict[str, float]:
        """Makes the engine act with `state`, which are the weights of the sampler's model now, under `version`.

        Returns the largest gap in nats on the probe, the share of tensors whose norm changed since the push before, 1
        at the first, and the seconds it took.
        """
        began = time.perf_counter()
        sent = norms_of(state)
        differing = compare_norms(sent, self.sampler.engine.load(state, version))
        if differing:
            raise StaleWeights(
                f"the engine read other weights than version {version}: {'; '.join(differing[:3])}"
                f" ({len(differing)} of {len(sent)} differ): is its folder shared, and written by this run alone?"
            )
        changed = [name for name, norm in sent.items() if norm != self._norms.get(name)]
        self._norms, self.sampler.version = sent, version
        gap = probe_gap(self.sampler)
        if not gap <= self.limit:
            raise StaleWeights(
                f"at version {version} engine and learner differ by {gap:.4f} nats on a probe, limit {self.limit:g}: "
                "the engine does not act with what it read, or computes in another precision"
            )
        return {
            "policy/sync_gap": gap,
            "policy/sync_changed": len(changed) / len(sent),
            "time/sync": time.perf_counter() - began,
        }


def norms_of(state: Mapping[str, Tensor]) -> dict[str, float]:
    """Each tensor's Euclidean norm, summed in float64."""
    return {name: float(torch.linalg.vector_norm(weight, dtype=torch.float64)) for name, weight in state.items()}


def compare_norms(sent: Mapping[str, float], read: Mapping[str, float]) -> list[str]:
    """One line for each tensor that is missing, extra, or of another norm."""
    lines = []
    for name in sorted(sent.keys() | read.keys()):
        if name not in sent or name not in read:
            lines.append(f"{name} was {'read but not sent' if name in read else 'never read'}")
        elif read[name] < 0:
            lines.append(f"{name} is not what the engine's layers hold")
        elif not math.isclose(sent[name], read[name], rel_tol=1e-6, abs_tol=1e-12):
            lines.append(f"{name} has norm {read[name]:.6g}, the learner's has {sent[name]:.6g}")
    return lines


def probe_gap(sampler: VllmSampler) -> float:
    """Largest difference in nats between engine and learner on two short conversations with pictures of noise."""
    sampling = replace(sampler.sampling, greedy=False)
    asking = VllmSampler(sampler.chat, sampler.engine, sampling, system=sampler.system, version=sampler.version)
    turns: dict[int, list[Turn]] = {row: [] for row in PROBE_ROWS}
    for row in PROBE_ROWS:
        asking.begin(row, derive(0, "probe", row))
    for turn in range(PROBE_TURNS):
        shown = [noise(row, turn) for row in PROBE_ROWS]
        for row, seen, decision in zip(PROBE_ROWS, shown, asking.act(PROBE_ROWS, shown)):
            turns[row].append(Turn(seen, decision, 0.0, False, False))
    episodes = [Episode(f"probe{row}", 0, 0, tuple(taken)) for row, taken in turns.items()]
    return scored_gap(sampler.chat, episodes, sampling)


@torch.no_grad()
def scored_gap(chat: ChatVLM, episodes: Sequence[Episode], sampling: Sampling) -> float:
    """Largest difference in nats between log-probs as sampled and as `chat` scores them, over all sampled tokens."""
    segments = [segment for episode in episodes for segment in to_segments(episode, loss_on="reply")]
    batch = collate(segments, chat.encode_images)
    was_training = chat.training
    chat.eval()
    scores = chat.evaluate(
        to_device(batch.inputs, chat.device),
        temperature=sampling.temperature,
        top_k=sampling.top_k,
        top_p=sampling.top_p,
    )
    chat.train(was_training)
    return float((scores.logprobs.cpu() - batch.logprobs)[batch.mask].abs().max())


def noise(row: int, turn: int) -> Observation:
    """A turn of the probe: a few words and one or two pictures."""
    random = numpy_rng(0, "probe", row, turn)
    pictures = {f"camera{i}": random.integers(0, 256, (64, 64, 3), dtype=np.uint8) for i in range(1 + turn)}
    return Observation(text=f"Turn {turn + 1}. What do you see?", images=pictures)
