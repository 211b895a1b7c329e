"""Objects of ours in processes that Ray places on this machine or on a cluster: the workers of a pool.

The one module, beside the pool, that knows Ray.
"""

from __future__ import annotations

import importlib.util
import os
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from lookact.errors import ConfigError, EngineError
from lookact.rollout.reach import is_reachable

if importlib.util.find_spec("ray") is None:
    raise ConfigError("workers on Ray need the package: pip install 'lookact[ray]'")

import ray
from ray.exceptions import RayTaskError

STORE_BYTES = 512 * 2**20


@dataclass(frozen=True)
class Share:
    """What one placed object takes of its machine."""

    cpus: float = 1.0
    gpus: float = 0.0
    kind: str = ""
    """A resource that only some machines of a cluster declare, such as `judge`; it takes one of it."""


ONE_CORE = Share()


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


def leave_cluster() -> None:
    """Part from the cluster; one that was started here ends, and with it all that was placed."""
    ray.shutdown()


def check_room(share: Share, count: int) -> None:
    """Refuse to wait for ever: the cluster must have room for `count` such objects."""
    there = ray.cluster_resources()
    for name, each in (("CPU", share.cpus), ("GPU", share.gpus), (share.kind, 1.0 if share.kind else 0.0)):
        if each * count > there.get(name, 0.0):
            raise ConfigError(
                f"{count} placed objects need {each * count:g} {name}, the Ray cluster has {there.get(name, 0):g}: "
                "ask for fewer, or start more nodes"
            )


class Host:
    """The far end: one object, built where it lives."""

    def __init__(self, make: Callable[[], Any]) -> None:
        self.guest = make()

    def call(self, method: str, *arguments: Any, **named: Any) -> Any:
        return getattr(self.guest, method)(*arguments, **named)

    def pid(self) -> int:
        return os.getpid()


def place(make: Callable[[], Any], share: Share) -> Any:
    """A handle on the object that `make` builds in another process; `handle.call.remote(method, ...)` asks it."""
    resources = {share.kind: 1.0} if share.kind else None
    options = {"num_cpus": share.cpus, "num_gpus": share.gpus, "resources": resources, "max_restarts": 0}
    return ray.remote(Host).options(**options).remote(make)


def fetch(reference: Any) -> Any:
    """What was asked for; an error of the object's own comes as it was raised there."""
    try:
        return ray.get(reference)
    except RayTaskError as error:
        raise (error.cause if isinstance(error.cause, Exception) else error) from error
