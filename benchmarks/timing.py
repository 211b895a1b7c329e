"""Two or more ways to do one thing, measured side by side: one process each, one thread each, in turn.

Every way runs in a process of its own, so that its peak memory is its own. Repetitions alternate (A B A B ...), so
that whatever else the machine does hits all of them alike. A time is the CPU time of the process: with one thread
that is the wall time of a quiet machine.
"""

from __future__ import annotations

import multiprocessing
import os
import resource
import statistics
import sys
import time
import traceback
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

from lookact.errors import EngineError

CPU, WALL = "cpu_seconds", "wall_seconds"
Facts = Mapping[str, float]
Work = Callable[[], Facts]
"""Does the thing once; tells what it did, such as how many tokens it sampled. A work that must do more than what is
to be measured tells its own times, under `CPU` and `WALL`."""
Prepare = Callable[..., Work]
"""A module's function, called inside the process: what it does is not measured."""

THREADS = ("OMP_NUM_THREADS", "MKL_NUM_THREADS", "OPENBLAS_NUM_THREADS", "RAYON_NUM_THREADS")


@dataclass(frozen=True)
class Timing:
    """What one way took, repetition by repetition."""

    seconds: tuple[float, ...]
    """CPU time of each repetition."""
    wall_seconds: tuple[float, ...]
    start_mb: float
    """Memory of the process before the first repetition: interpreter, libraries, model."""
    peak_mb: float
    facts: Facts
    """Of the last repetition."""

    @property
    def median(self) -> float:
        return statistics.median(self.seconds)


def race(ways: Mapping[str, tuple[Prepare, Sequence[Any]]], *, repetitions: int, warmup: int = 1) -> dict[str, Timing]:
    """Runs every way `repetitions` times in turn, after `warmup` times that do not count.

    A way is a function of a module with its arguments; it returns the work to measure.
    """
    runners = {name: _Runner(prepare, arguments) for name, (prepare, arguments) in ways.items()}
    try:
        for runner in runners.values():
            runner.receive()
        for _ in range(warmup + repetitions):
            for runner in runners.values():
                runner.repeat()
        return {name: runner.timing(skip=warmup) for name, runner in runners.items()}
    finally:
        for runner in runners.values():
            runner.stop()


def peak_mb() -> float:
    """The most memory this process has held at once, in MB."""
    status = Path("/proc/self/status")
    if status.exists():
        # ru_maxrss would begin at the size of the process that started this one
        line = next(line for line in status.read_text().splitlines() if line.startswith("VmHWM"))
        return int(line.split()[1]) / 1e3
    # bytes on macOS
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1e6


class _Runner:
    """The parent's end of one way."""

    def __init__(self, prepare: Prepare, arguments: Sequence[Any]) -> None:
        context = multiprocessing.get_context("spawn")
        self.pipe, far_end = context.Pipe()
        self.process = context.Process(target=_serve, args=(far_end, prepare, tuple(arguments)), daemon=True)
        with _one_thread():
            self.process.start()
        far_end.close()
        self.laps: list[tuple[float, float, Facts]] = []

    def receive(self) -> Any:
        try:
            worked, answer = self.pipe.recv()
        except EOFError as error:
            raise EngineError("a bench process died without a word: is there enough memory?") from error
        if not worked:
            raise EngineError(f"a bench process failed: {answer}")
        return answer

    def repeat(self) -> None:
        self.pipe.send("again")
        self.laps.append(self.receive())

    def timing(self, *, skip: int) -> Timing:
        self.pipe.send("enough")
        start, peak = self.receive()
        cpu, wall, facts = zip(*self.laps[skip:])
        return Timing(cpu, wall, start, peak, facts[-1])

    def stop(self) -> None:
        self.pipe.close()
        self.process.join(timeout=5)
        if self.process.is_alive():
            self.process.terminate()


def _serve(pipe: Connection, prepare: Prepare, arguments: tuple[Any, ...]) -> None:
    """The child's end: prepare, then work each time it is asked to."""
    # what libraries have to say would mix with the bench's own output
    for stream in (sys.stdout, sys.stderr):
        os.dup2(os.open(os.devnull, os.O_WRONLY), stream.fileno())
    try:
        work = prepare(*arguments)
        start = peak_mb()
        pipe.send((True, None))
        while pipe.recv() == "again":
            cpu, wall = time.process_time(), time.perf_counter()
            facts = dict(work())
            times = {CPU: time.process_time() - cpu, WALL: time.perf_counter() - wall} | facts
            pipe.send((True, (times.pop(CPU), times.pop(WALL), times)))
        pipe.send((True, (start, peak_mb())))
    except EOFError:
        # the parent has gone: nobody is left to tell
        return
    except Exception:
        pipe.send((False, traceback.format_exc(limit=-3)))


@contextmanager
def _one_thread() -> Iterator[None]:
    """Processes started within use one thread: numeric libraries read this when they are loaded."""
    before = {name: os.environ.get(name) for name in THREADS}
    os.environ.update(dict.fromkeys(THREADS, "1"))
    try:
        yield
    finally:
        for name, value in before.items():
            if value is None:
                del os.environ[name]
            else:
                os.environ[name] = value
