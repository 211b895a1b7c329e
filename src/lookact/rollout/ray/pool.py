"""Workers on Ray that run plans: on this machine or on a cluster, replaced when they die or dawdle.

An episode's content depends on its plan and the weights alone (`dispatch.py`). Weights go through the object store,
so that each machine receives them once, however many workers it has.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from functools import partial
from typing import Any

import ray
from ray.exceptions import ObjectLostError, RayActorError, RayError
from torch import Tensor

from lookact.errors import EngineError, StaleWeights
from lookact.rollout.ray.dispatch import Dispatch
from lookact.rollout.ray.placement import ONE_CORE, Share, check_room, fetch, place
from lookact.rollout.ray.worker import RolloutWorker, WorkerContext, pack
from lookact.types import Episode, EpisodeSpec

logger = logging.getLogger(__name__)
TICK_SECONDS = 1.0
PATIENCE_SECONDS = 1800.0
MOST_STILLBORN = 3
GONE = (RayActorError, ObjectLostError)
"""A worker that died, or a machine that took its answer with it."""


class RayPool:
    """A `WeightSync` and a runner of plans. Join a cluster first; one call at a time."""

    def __init__(
        self,
        make_context: Callable[[], WorkerContext],
        *,
        workers: int,
        chunk: int,
        share: Share = ONE_CORE,
        patience: float = PATIENCE_SECONDS,
    ) -> None:
        """`make_context` is called in each worker's process; `patience` is how many seconds a chunk may take there."""
        check_room(share, workers)
        self.chunk, self.patience, self.version = chunk, patience, -1
        self.lost = 0
        """Workers that died, or were ended for dawdling."""
        self._stillborn = 0
        self._place = partial(place, partial(RolloutWorker, make_context), share)
        self._workers = [self._place() for _ in range(workers)]
        self._parcel: Any = None
        self._thread = ThreadPoolExecutor(max_workers=1, thread_name_prefix="rollout")

    def push(self, state: Mapping[str, Tensor], version: int) -> None:
        """All workers act with `state` from now on; those that die over it are replaced."""
        # the store frees the weights before these when nobody holds on to them any more
        self._parcel, self.version = ray.put(pack(state)), version
        asked = {slot: self._load(worker) for slot, worker in enumerate(self._workers)}
        while asked:
            slot, reference = asked.popitem()
            try:
                held = fetch(reference)
            except GONE as error:
                self._count_stillborn(error)
                self._replace(slot, error)
                asked[slot] = self._load(self._workers[slot])
                continue
            self._stillborn = 0
            if held != version:
                raise StaleWeights(f"worker {slot} holds version {held} of the weights after {version} was sent")

    def collect(self, plans: Sequence[EpisodeSpec]) -> list[Episode]:
        """Every plan's episode, in the order of the plans."""
        return self.start(plans).result()

    def start(self, plans: Sequence[EpisodeSpec]) -> Future[list[Episode]]:
        """The same, while the caller does something else; weights must not be pushed before it is done."""
        return self._thread.submit(self._run, Dispatch(plans, chunk=self.chunk, version=self.version))

    def pids(self) -> list[int]:
        """The workers' processes."""
        return [int(fetch(worker.pid.remote())) for worker in self._workers]

    def close(self) -> None:
        """End the workers; what still runs is dropped."""
        for worker in self._workers:
            ray.kill(worker)
        self._thread.shutdown(wait=False, cancel_futures=True)

    def _run(self, book: Dispatch) -> list[Episode]:
        asked: dict[Any, int] = {}
        since: dict[int, float] = {}
        # new workers that are still being built and given the weights
        arriving: dict[Any, int] = {}
        while not book.done:
            for slot, worker in enumerate(self._workers):
                busy = slot in book.running or slot in arriving.values()
                if not busy and (chunk := book.hand_out(slot)) is not None:
                    asked[worker.call.remote("run", chunk.plans, book.version)] = slot
                    since[slot] = time.monotonic()
            for reference in ray.wait([*asked, *arriving], timeout=TICK_SECONDS)[0]:
                slot = asked.pop(reference, -1)
                lost = self._settle(book, slot, reference) if slot >= 0 else self._welcome(arriving, reference)
                arriving |= lost
            for reference, slot in list(asked.items()):
                if time.monotonic() - since[slot] > self.patience:
                    del asked[reference]
                    # first ended, then given up: it can't come back with what another was handed
                    ray.kill(self._workers[slot])
                    book.lose(slot, f"a worker took over {self.patience:g} seconds")
                    arriving |= self._renew(slot, None)
        return book.episodes()

    def _settle(self, book: Dispatch, slot: int, reference: Any) -> dict[Any, int]:
        """Take a chunk back; a worker that is gone has a successor on its way."""
        try:
            book.take_back(slot, fetch(reference))
        except GONE as error:
            book.lose(slot, f"a worker died: {_reason(error)}")
            return self._renew(slot, error)
        return {}

    def _welcome(self, arriving: dict[Any, int], reference: Any) -> dict[Any, int]:
        """A new worker is ready, unless it is gone already."""
        slot = arriving.pop(reference)
        try:
            fetch(reference)
        except GONE as error:
            self._count_stillborn(error)
            return self._renew(slot, error)
        self._stillborn = 0
        return {}

    def _count_stillborn(self, error: RayError) -> None:
        self._stillborn += 1
        if self._stillborn > MOST_STILLBORN:
            raise EngineError(
                f"{self._stillborn} workers in a row died before they acted, is there memory left? {_reason(error)}"
            ) from error

    def _renew(self, slot: int, error: RayError | None) -> dict[Any, int]:
        self._replace(slot, error)
        return {self._load(self._workers[slot]): slot}

    def _replace(self, slot: int, error: RayError | None) -> None:
        """A new worker in place of one that is gone. One that could not even be built says why, and ends the run."""
        if isinstance(error, RayActorError) and error.actor_init_failed:
            raise EngineError(f"a rollout worker could not be built: {_reason(error)}") from error
        self.lost += 1
        logger.warning("rollout worker %d is replaced: %s", slot, "it dawdled" if error is None else _reason(error))
        self._workers[slot] = self._place()

    def _load(self, worker: Any) -> Any:
        """Ask for the current weights, or only to be there while there are none."""
        return worker.pid.remote() if self._parcel is None else worker.call.remote("load", self._parcel, self.version)


def _reason(error: RayError) -> str:
    """The last line of what Ray says."""
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    return lines[-1] if lines else type(error).__name__
