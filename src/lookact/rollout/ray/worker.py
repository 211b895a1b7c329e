"""A rollout worker and the queue that feeds it; knows nothing of Ray, which `pool.py` adds."""

from __future__ import annotations

import os
from collections import deque
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from lookact.errors import EngineError, StaleWeights
from lookact.protocols import Actor, Env
from lookact.rollout.collect import collect
from lookact.types import Episode, EpisodeSpec

PackedWeights = Mapping[str, tuple[str, NDArray[np.generic]]]
"""Each tensor's type and numbers, laid out so that processes of one machine read the same memory."""


@dataclass(frozen=True)
class WorkerContext:
    """Sampler, environments and model of a worker; built inside its process."""

    actor: Actor
    envs: Sequence[Env]
    """As many as a chunk has episodes."""
    model: nn.Module
    """Takes the learner's weights, by the learner's names."""
    threads: bool = False
    """Environments step in threads, and the sampler acts on the rows that are ready."""


class RolloutWorker:
    """Runs chunks of episodes with its own sampler and environments, and exactly the weights it was sent."""

    def __init__(self, make_context: Callable[[], WorkerContext]) -> None:
        self.context = make_context()
        self.context.actor.version = -1

    def pid(self) -> int:
        return os.getpid()

    def load(self, packed: PackedWeights, version: int) -> int:
        """Act with these weights from now on; returns the version, once the model is seen to hold them."""
        # unknown until all of them have arrived
        self.context.actor.version = -1
        load_weights(self.context.model, unpack_weights(packed))
        self.context.actor.version = version
        return version

    def run(self, specs: Sequence[EpisodeSpec], version: int) -> list[Episode]:
        """The episodes of the specs, in one batch."""
        held = self.context.actor.version
        if held != version:
            raise StaleWeights(f"this worker holds version {held} of the weights, not {version}: push them first")
        return collect(specs, self.context.envs, self.context.actor, threads=self.context.threads)


def pack_weights(state: Mapping[str, Tensor]) -> PackedWeights:
    """Tensors as arrays; numpy has no bfloat16, so its bits travel as integers."""
    packed = {}
    for name, tensor in state.items():
        kind = str(tensor.dtype).removeprefix("torch.")
        local = tensor.detach().cpu().contiguous()
        packed[name] = (kind, local.view(torch.int16).numpy() if kind == "bfloat16" else local.numpy())
    return packed


def unpack_weights(packed: PackedWeights) -> Iterable[tuple[str, Tensor]]:
    """One tensor at a time, copied out of the shared memory, which must not be written to."""
    for name, (kind, array) in packed.items():
        tensor = torch.from_numpy(array.copy())
        yield name, tensor.view(torch.bfloat16) if kind == "bfloat16" else tensor


@torch.no_grad()
def load_weights(model: nn.Module, weights: Iterable[tuple[str, Tensor]]) -> None:
    """Copies weights into a model by name, in its precision, and checks that it holds them."""
    held = model.state_dict()
    for name, tensor in weights:
        if name not in held or held[name].shape != tensor.shape:
            raise StaleWeights(f"the worker's model has no {name} of shape {tuple(tensor.shape)}: it is another model")
        held[name].copy_(tensor)
        # read again from the model itself: what was written to must be what it computes with
        if not torch.equal(model.get_parameter(name), tensor.to(held[name])):
            raise StaleWeights(f"the worker's model did not take {name}: it acts with other weights than were sent")


@dataclass(frozen=True)
class Chunk:
    """Episodes that one worker runs as one batch."""

    index: int
    specs: tuple[EpisodeSpec, ...]
    again: bool = False
    """It was lost once with a worker."""


class Dispatch:
    """Work queue of one step: which specs wait, which run where, which came back; each comes back exactly once.

    Chunks are cut by the order of the specs alone and a chunk is one batch of a sampler, so that an episode's numbers
    are the same to the last bit whichever worker runs its chunk, and however many workers there are.
    """

    def __init__(self, specs: Sequence[EpisodeSpec], *, chunk_size: int, version: int) -> None:
        if len({spec.id for spec in specs}) < len(specs):
            raise EngineError("two specs have one id: they could not be told apart when they come back")
        self.version = version
        self.waiting = deque(
            Chunk(index, tuple(specs[start : start + chunk_size]))
            for index, start in enumerate(range(0, len(specs), chunk_size))
        )
        self.running: dict[int, Chunk] = {}
        """By worker."""
        self.lost_chunks = 0
        self._chunks = len(self.waiting)
        self._episodes: dict[int, list[Episode]] = {}

    @property
    def done(self) -> bool:
        return len(self._episodes) == self._chunks

    def assign(self, worker: int) -> Chunk | None:
        """The next chunk, now the worker's; None if none waits."""
        if worker in self.running:
            raise EngineError(f"worker {worker} was given a chunk before it gave back its last")
        if not self.waiting:
            return None
        self.running[worker] = self.waiting.popleft()
        return self.running[worker]

    def complete(self, worker: int, episodes: Sequence[Episode]) -> None:
        """What became of the worker's chunk; other specs or other weights than were asked for are refused."""
        chunk = self.running.pop(worker)
        if [episode.id for episode in episodes] != [spec.id for spec in chunk.specs]:
            raise EngineError(f"worker {worker} ran {[e.id for e in episodes]}, not {[s.id for s in chunk.specs]}")
        for episode in episodes:
            if episode.policy_version != self.version:
                raise StaleWeights(
                    f"episode {episode.id} was run with weights of version {episode.policy_version}, "
                    f"not {self.version}: worker {worker} was not given the newest"
                )
        self._episodes[chunk.index] = list(episodes)

    def lose(self, worker: int, reason: str) -> None:
        """The worker is gone. Its chunk is the next to be assigned; lost twice, its episodes have failed."""
        chunk = self.running.pop(worker, None)
        if chunk is None:
            return
        self.lost_chunks += 1
        if not chunk.again:
            self.waiting.appendleft(Chunk(chunk.index, chunk.specs, again=True))
            return
        # what ends two workers would end a third: a bad rollout is data
        self._episodes[chunk.index] = [
            Episode(spec.id, spec.group, spec.seed, (), policy_version=self.version, error=f"EngineError: {reason}")
            for spec in chunk.specs
        ]

    def episodes(self) -> list[Episode]:
        """All of them, in the order of their specs."""
        return [episode for index in range(self._chunks) for episode in self._episodes[index]]
