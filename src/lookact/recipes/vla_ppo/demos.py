"""Demonstrations of vla-ppo: recorded by the scripted expert in worker processes, kept as a LeRobot folder."""

from __future__ import annotations

import itertools
import logging
import multiprocessing
import os
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import Future, ProcessPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from pathlib import Path
from threading import Thread
from typing import Any, TypeVar

import numpy as np

from lookact.data.lerobot.read import Demonstration, Wanted, read_demonstrations
from lookact.data.lerobot.write import write_demonstrations
from lookact.envs.tabletop.env import Tabletop
from lookact.envs.tabletop.experts import record
from lookact.envs.tabletop.pretraining_images import TableLook, look_around
from lookact.errors import EnvError
from lookact.recipes.vla_ppo.config import World
from lookact.recipes.vla_ppo.task import make_table
from lookact.seeding import derive
from lookact.training.progress import progress

log = logging.getLogger(__name__)
T = TypeVar("T")
FPS, ROBOT = 10, "lookact_panda"
AT_ONCE = 8
"""Episodes or looks that a worker makes before it reports."""
_table: list[Tabletop] = []
"""A worker's own environment."""


def cores() -> int:
    """How many cores this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def record_demos(world: World, *, seed: int, count: int, noise: float, workers: int) -> Iterator[Demonstration]:
    """The first `count` episodes that the expert solves, whoever recorded them; those it does not are left out."""
    tasks = ((derive(seed, "demo", start), noise) for start in itertools.count())
    kept = tried = 0
    with progress(count, "recording the expert") as bar:
        for demo in in_workers(_record, tasks, world, workers):
            tried += 1
            if demo is not None:
                kept += 1
                bar.advance()
                yield demo
            if kept == count:
                break
            if tried >= 4 * AT_ONCE * workers and kept < tried // 4:
                raise EnvError(f"the expert solved {kept} of {tried} episodes: lower the noise, or raise max_steps")
    if tried > kept:
        log.info("%d of %d episodes were not solved by the expert, and left out", tried - kept, tried)


def draw_looks(world: World, *, seed: int, count: int, workers: int) -> list[TableLook]:
    """So many looks, each into a scene of its own."""
    seeds = [(derive(seed, "look", number),) for number in range(count)]
    return list(progress(list(in_workers(_look, seeds, world, workers)), "looking at the table"))


def in_workers(function: Callable[..., T], tasks: Iterable[tuple[Any, ...]], world: World, workers: int) -> Iterator[T]:
    """What `function(*task)` gives for each task, in order; a few batches are made ahead, and none is made twice."""
    context = multiprocessing.get_context("spawn")
    source = iter(tasks)
    ahead: list[Future[list[T]]] = []
    with ProcessPoolExecutor(workers, context, _open_table, (world,)) as pool:
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


def open_demos(folder: Path, world: World) -> Iterator[Demonstration]:
    """Demonstrations from a LeRobot folder, one of ours or another's; a DataError where they are of another world."""
    wanted = Wanted(cameras=world.cameras, state_size=world.state_size, action_size=world.action_size)
    return read_demonstrations(folder, wanted)


def write_demos(folder: Path, world: World, *, seed: int, count: int, noise: float, workers: int) -> int:
    """Record and write `count` demonstrations; the folder is there as a whole or not at all."""
    demos = record_demos(world, seed=seed, count=count, noise=noise, workers=workers)
    return write_demonstrations(folder, demos, fps=FPS, robot=ROBOT)


def _open_table(world: World) -> None:
    Thread(target=_end_with_parent, daemon=True).start()
    _table[:] = [make_table(world)]


def _end_with_parent() -> None:
    """A pool's worker waits for ever for a parent that was killed, unless it looks."""
    parent = multiprocessing.parent_process()
    assert parent is not None
    parent.join()
    os._exit(1)


def _run(function: Callable[..., T], tasks: list[tuple[Any, ...]]) -> list[T]:
    return [function(*task) for task in tasks]


def _record(seed: int, noise: float) -> Demonstration | None:
    env = _table[0]
    episode = record(env, seed=seed, noise=noise)
    if not episode.info["success"]:
        return None
    return Demonstration(
        task=str(episode.info["instruction"]),
        images={camera: np.stack([shown[camera] for shown in episode.shown]) for camera in env.cameras},
        states=np.stack([shown["state"] for shown in episode.shown]),
        actions=episode.actions,
    )


def _look(seed: int) -> TableLook:
    return next(look_around(_table[0], [seed]))
