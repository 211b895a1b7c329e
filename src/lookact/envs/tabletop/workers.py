"""Work that processes share, each with a tabletop of its own: demonstrations and labelled images. Loads no torch."""

from __future__ import annotations

import itertools
import multiprocessing
import os
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import Future, ProcessPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from threading import Thread
from typing import Any, TypeVar

import numpy as np
from numpy.typing import NDArray

from lookact.envs.tabletop.env import Tabletop
from lookact.envs.tabletop.experts import Recording, record
from lookact.envs.tabletop.hindsight import relabel
from lookact.envs.tabletop.pretraining_images import LabelledImage, labelled_image
from lookact.errors import EnvError

T = TypeVar("T")
AT_ONCE = 8
"""Episodes or images that a worker makes before it reports."""
_table: list[Tabletop] = []
"""A worker's own environment."""


def in_workers(
    function: Callable[..., T], tasks: Iterable[tuple[Any, ...]], make_table: Callable[[], Tabletop], workers: int
) -> Iterator[T]:
    """What `function(*task)` gives for each task, in order; a few batches are made ahead, and none is made twice."""
    context = multiprocessing.get_context("spawn")
    source = iter(tasks)
    ahead: list[Future[list[T]]] = []
    with ProcessPoolExecutor(workers, context, _open_table, (make_table,)) as pool:
        try:
            while True:
                while len(ahead) < 2 * workers and (batch := list(itertools.islice(source, AT_ONCE))):
                    ahead.append(pool.submit(_run, function, batch))
                if not ahead:
                    return
                yield from ahead.pop(0).result()
        except BrokenProcessPool as error:
            raise EnvError("a worker process died while it recorded: is there memory enough?") from error
        finally:
            pool.shutdown(cancel_futures=True)


def record_here(seed: int, noise: float) -> Recording:
    """One episode of the expert, in the worker's environment."""
    return record(_table[0], seed=seed, noise=noise)


def record_outside_here(seed: int, noise: float) -> Recording:
    """One episode of the expert of another's environment, in the worker's own."""
    return record(_table[0], seed=seed, noise=noise, act=lambda env: env.expert_action())


def relabel_here(seed: int, actions: Sequence[NDArray[np.float32]]) -> Recording | None:
    """An episode relabelled in hindsight, in the worker's environment."""
    return relabel(_table[0], seed, actions)


def label_here(seed: int) -> LabelledImage:
    """One labelled image, of the worker's environment."""
    return labelled_image(_table[0], seed)


def _open_table(make_table: Callable[[], Tabletop]) -> None:
    Thread(target=_end_with_parent, daemon=True).start()
    _table[:] = [make_table()]


def _end_with_parent() -> None:
    """A pool's worker waits for ever for a parent that was killed, unless it checks."""
    parent = multiprocessing.parent_process()
    assert parent is not None
    parent.join()
    os._exit(1)


def _run(function: Callable[..., T], tasks: list[tuple[Any, ...]]) -> list[T]:
    return [function(*task) for task in tasks]
