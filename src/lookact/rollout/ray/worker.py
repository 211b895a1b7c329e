"""An engine with environments of its own, that runs plans with exactly the weights it is told to have."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from lookact.errors import StaleWeights
from lookact.protocols import Actor, Env
from lookact.rollout.collect import collect
from lookact.types import Episode, EpisodeSpec

Parcel = Mapping[str, tuple[str, NDArray[np.generic]]]
"""Each tensor's type and numbers, laid out so that processes of one machine read the same memory."""


@dataclass(frozen=True)
class WorkerContext:
    """What a worker works with; built inside its process."""

    actor: Actor
    envs: Sequence[Env]
    """As many as a chunk has plans."""
    model: nn.Module
    """Takes the learner's weights, by the learner's names."""


class RolloutWorker:
    """Runs chunks of plans; lives in a process that `placement` watches."""

    def __init__(self, make_context: Callable[[], WorkerContext]) -> None:
        self.station = make_context()
        self.station.actor.version = -1

    def pid(self) -> int:
        return os.getpid()

    def load(self, parcel: Parcel, version: int) -> int:
        """Act with these weights from now on; returns the version, once the model is seen to hold them."""
        # unknown until all of them have arrived
        self.station.actor.version = -1
        put_in_place(self.station.model, unpack(parcel))
        self.station.actor.version = version
        return version

    def run(self, plans: Sequence[EpisodeSpec], version: int) -> list[Episode]:
        """The plans' episodes, side by side in one batch."""
        held = self.station.actor.version
        if held != version:
            raise StaleWeights(f"this worker holds version {held} of the weights, not {version}: push them first")
        return collect(plans, self.station.envs, self.station.actor)


def pack(state: Mapping[str, Tensor]) -> Parcel:
    """Tensors as arrays; numpy has no bfloat16, so its bits travel as integers."""
    parcel = {}
    for name, tensor in state.items():
        kind = str(tensor.dtype).removeprefix("torch.")
        local = tensor.detach().cpu().contiguous()
        parcel[name] = (kind, local.view(torch.int16).numpy() if kind == "bfloat16" else local.numpy())
    return parcel


def unpack(parcel: Parcel) -> Iterable[tuple[str, Tensor]]:
    """One tensor at a time, copied out of the shared memory, which must not be written to."""
    for name, (kind, array) in parcel.items():
        tensor = torch.from_numpy(array.copy())
        yield name, tensor.view(torch.bfloat16) if kind == "bfloat16" else tensor


@torch.no_grad()
def put_in_place(model: nn.Module, weights: Iterable[tuple[str, Tensor]]) -> None:
    """Copy weights into a model by name, in the model's own precision, and see that it holds them."""
    held = model.state_dict()
    for name, tensor in weights:
        if name not in held or held[name].shape != tensor.shape:
            raise StaleWeights(f"the worker's model has no {name} of shape {tuple(tensor.shape)}: it is another model")
        held[name].copy_(tensor)
        # read again from the model itself: what was written to must be what it computes with
        if not torch.equal(model.get_parameter(name), tensor.to(held[name])):
            raise StaleWeights(f"the worker's model did not take {name}: it acts with other weights than were sent")
