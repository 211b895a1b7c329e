"""Rollout workers on Ray, on this machine or on a cluster, replaced when they die or time out.

An episode's content depends on its spec and the weights alone (`worker.Dispatch`). Weights go through the object store,
so that each machine receives them once, however many workers it has. The one module that knows Ray.
"""

from __future__ import annotations

import importlib.util
import logging
import os
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager
from functools import partial
from typing import Any

from torch import Tensor

from lookact.errors import ConfigError, EngineError, StaleWeights
from lookact.rollout.ray.worker import Dispatch, RolloutWorker, WorkerContext, pack_weights
from lookact.rollout.reach import is_reachable
from lookact.types import Episode, EpisodeSpec

if importlib.util.find_spec("ray") is None:
    raise ConfigError("workers on Ray need the package: pip install 'lookact[ray]'")

import ray
from ray._private import ray_constants
from ray.exceptions import ObjectLostError, RayActorError, RayError, RayTaskError

logger = logging.getLogger(__name__)
STORE_BYTES = 512 * 2**20
TICK_SECONDS = 1.0
CHUNK_TIMEOUT_SECONDS = 1800.0
MAX_FAILED_STARTS = 3
GONE = (RayActorError, ObjectLostError)
"""A worker that died, or a machine that took its answer with it."""


class RayPool:
    """Collects episodes on Ray workers and pushes weights to them. Join a cluster first; one call at a time."""

    def __init__(
        self,
        make_context: Callable[[], WorkerContext],
        *,
        workers: int,
        chunk_size: int,
        cpus: float = 1.0,
        gpus: float = 0.0,
        timeout_s: float = CHUNK_TIMEOUT_SECONDS,
    ) -> None:
        """`make_context` is called in each worker's process; `cpus` and `gpus` are one worker's share."""
        check_capacity(workers, cpus=cpus, gpus=gpus)
        self.chunk_size, self.timeout_s, self.version = chunk_size, timeout_s, -1
        self.lost = 0
        """Workers that died or timed out."""
        self._failed_starts = 0
        self._place = partial(place, partial(RolloutWorker, make_context), cpus=cpus, gpus=gpus)
        self._workers = [self._place() for _ in range(workers)]
        self._weights: Any = None
        self._thread = ThreadPoolExecutor(max_workers=1, thread_name_prefix="rollout")

    def push(self, state: Mapping[str, Tensor], version: int) -> None:
        """All workers act with `state` from now on; those that die over it are replaced."""
        # the store frees the weights before these when nobody holds on to them any more
        self._weights, self.version = ray.put(pack_weights(state)), version
        asked = {slot: self._load(worker) for slot, worker in enumerate(self._workers)}
        while asked:
            slot, reference = asked.popitem()
            try:
                held = fetch(reference)
            except GONE as error:
                self._count_failed_start(error)
                self._replace(slot, error)
                asked[slot] = self._load(self._workers[slot])
                continue
            self._failed_starts = 0
            if held != version:
                raise StaleWeights(f"worker {slot} holds version {held} of the weights after {version} was sent")

    def collect(self, specs: Sequence[EpisodeSpec]) -> list[Episode]:
        """Every spec's episode, in order."""
        return self.start(specs).result()

    def start(self, specs: Sequence[EpisodeSpec]) -> Future[list[Episode]]:
        """`collect` in the background; weights must not be pushed before it is done."""
        return self._thread.submit(self._run, Dispatch(specs, chunk_size=self.chunk_size, version=self.version))

    def close(self) -> None:
        """End the workers; what still runs is dropped."""
        for worker in self._workers:
            ray.kill(worker)
        self._thread.shutdown(wait=False, cancel_futures=True)

    def _run(self, dispatch: Dispatch) -> list[Episode]:
        asked: dict[Any, int] = {}
        since: dict[int, float] = {}
        # new workers that are still being built and given the weights
        arriving: dict[Any, int] = {}
        while not dispatch.done:
            for slot, worker in enumerate(self._workers):
                busy = slot in dispatch.running or slot in arriving.values()
                if not busy and (chunk := dispatch.assign(slot)) is not None:
                    asked[worker.call.remote("run", chunk.specs, dispatch.version)] = slot
                    since[slot] = time.monotonic()
            for reference in ray.wait([*asked, *arriving], timeout=TICK_SECONDS)[0]:
                slot = asked.pop(reference, -1)
                lost = self._settle(dispatch, slot, reference) if slot >= 0 else self._welcome(arriving, reference)
                arriving |= lost
            for reference, slot in list(asked.items()):
                if time.monotonic() - since[slot] > self.timeout_s:
                    del asked[reference]
                    # first ended, then given up: it can't come back with what another was handed
                    ray.kill(self._workers[slot])
                    dispatch.lose(slot, f"a worker took over {self.timeout_s:g} seconds")
                    arriving |= self._renew(slot, None)
        return dispatch.episodes()

    def _settle(self, dispatch: Dispatch, slot: int, reference: Any) -> dict[Any, int]:
        """Take a chunk back; a worker that is gone has a successor on its way."""
        try:
            dispatch.complete(slot, fetch(reference))
        except GONE as error:
            dispatch.lose(slot, f"a worker died: {_reason(error)}")
            return self._renew(slot, error)
        return {}

    def _welcome(self, arriving: dict[Any, int], reference: Any) -> dict[Any, int]:
        """A new worker is ready, unless it is gone already."""
        slot = arriving.pop(reference)
        try:
            fetch(reference)
        except GONE as error:
            self._count_failed_start(error)
            return self._renew(slot, error)
        self._failed_starts = 0
        return {}

    def _count_failed_start(self, error: RayError) -> None:
        self._failed_starts += 1
        if self._failed_starts > MAX_FAILED_STARTS:
            raise EngineError(
                f"{self._failed_starts} workers in a row died before they acted, is there memory left? {_reason(error)}"
            ) from error

    def _renew(self, slot: int, error: RayError | None) -> dict[Any, int]:
        self._replace(slot, error)
        return {self._load(self._workers[slot]): slot}

    def _replace(self, slot: int, error: RayError | None) -> None:
        """A new worker in place of one that is gone. One that could not even be built says why, and ends the run."""
        if isinstance(error, RayActorError) and error.actor_init_failed:
            raise EngineError(f"a rollout worker could not be built: {_reason(error)}") from error
        self.lost += 1
        logger.warning("rollout worker %d is replaced: %s", slot, "it timed out" if error is None else _reason(error))
        self._workers[slot] = self._place()

    def _load(self, worker: Any) -> Any:
        """Ask for the current weights, or only to be there while there are none."""
        return worker.pid.remote() if self._weights is None else worker.call.remote("load", self._weights, self.version)


def _reason(error: RayError) -> str:
    """The last line of what Ray says."""
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    return lines[-1] if lines else type(error).__name__


def join_cluster(address: str = "", *, cpus: int | None = None, store_bytes: int = STORE_BYTES) -> bool:
    """Join the Ray cluster at `address`, or start one on this machine that ends with this process.

    False if this process had joined one already: it is then for others to leave it.
    """
    if ray.is_initialized():
        return False
    quiet: dict[str, Any] = {"log_to_driver": False, "logging_level": "ERROR"}
    if address:
        if address not in ("auto", "local") and not is_reachable(address):
            # Ray itself would try for minutes, and fill the screen
            raise ConfigError(f"no Ray cluster at {address}: start one with `ray start --head`")
        try:
            ray.init(address=address, **quiet)
        except (ConnectionError, ValueError, RuntimeError) as error:
            reason = str(error).splitlines()[0]
            raise ConfigError(f"no Ray cluster at {address} ({reason}): start one with `ray start --head`") from error
        return True
    for patient in (True, True, False):
        try:
            with loopback_only():
                ray.init(
                    num_cpus=cpus,
                    include_dashboard=False,
                    object_store_memory=store_bytes,
                    # acting is this machine's work, not something for its spare moments
                    _system_config={"worker_niceness": 0},
                    **quiet,
                )
            break
        except Exception as error:
            # Ray gives its own processes half a minute, short on a busy machine, and raises a bare Exception
            ray.shutdown()
            if not patient:
                raise EngineError(f"Ray does not start on this machine: {str(error).splitlines()[0]}") from error
    return True


@contextmanager
def loopback_only() -> Iterator[None]:
    """A cluster started here listens on loopback alone, unless Ray's own variable is set: it would on every interface.

    Linux machines are told to do as Ray does on a laptop; `_node_ip_address="127.0.0.1"` is turned into a public one.
    """
    name = ray_constants.ENABLE_RAY_CLUSTERS_ENV_VAR
    if name in os.environ:
        yield
        return
    os.environ[name], before = "0", ray_constants.ENABLE_RAY_CLUSTER
    ray_constants.ENABLE_RAY_CLUSTER = False
    try:
        yield
    finally:
        ray_constants.ENABLE_RAY_CLUSTER = before
        del os.environ[name]


def leave_cluster() -> None:
    """Part from the cluster; one that was started here ends, and with it all that was placed."""
    ray.shutdown()


def check_capacity(count: int, *, cpus: float, gpus: float) -> None:
    """Refuse to wait for ever: the cluster must have room for `count` workers."""
    there = ray.cluster_resources()
    for name, each in (("CPU", cpus), ("GPU", gpus)):
        if each * count > there.get(name, 0.0):
            raise ConfigError(
                f"{count} workers need {each * count:g} {name}, the Ray cluster has {there.get(name, 0):g}: "
                "ask for fewer, or start more nodes"
            )


class Host:
    """Ray actor around one object that is built in the actor's process, with modules from wherever its driver has them.

    Ray's own workers do not know where the driver found a task of another's file.
    """

    def __init__(self, make: bytes, path: Sequence[str]) -> None:
        sys.path += [folder for folder in path if folder not in sys.path]
        self.hosted = ray.cloudpickle.loads(make)()

    def call(self, method: str, *arguments: Any) -> Any:
        return getattr(self.hosted, method)(*arguments)

    def pid(self) -> int:
        return os.getpid()


def place(make: Callable[[], Any], *, cpus: float, gpus: float) -> Any:
    """A handle on the object that `make` builds in another process; `handle.call.remote(method, ...)` asks it."""
    options = {"num_cpus": cpus, "num_gpus": gpus, "max_restarts": 0}
    return ray.remote(Host).options(**options).remote(ray.cloudpickle.dumps(make), sys.path)


def fetch(reference: Any) -> Any:
    """The result of a call; an error of the object's own is raised as it was there."""
    try:
        return ray.get(reference)
    except RayTaskError as error:
        raise (error.cause if isinstance(error.cause, Exception) else error) from error
