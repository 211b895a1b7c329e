"""How far along, and how long still: a bar with an ETA on a terminal, a log line now and then elsewhere."""

from __future__ import annotations

import logging
import os
import time
from collections.abc import Iterable, Iterator, Sized
from contextlib import contextmanager
from datetime import timedelta
from typing import Generic, TypeVar, overload

import rich.progress as bars
from rich.console import Console

logger = logging.getLogger(__name__)

T = TypeVar("T")
CONSOLE = Console(stderr=True)
"""Give this one to a RichHandler too, so that log lines and bars do not overwrite each other."""
SECONDS_BETWEEN_LINES = 30.0
_shown: list[bars.Progress] = []


class Progress(Generic[T]):
    """Counts work. Iterate over it, or enter it and call `advance`."""

    def __init__(self, work: Iterable[T], label: str, *, done: int = 0) -> None:
        self.work, self.label, self.done, self.first = work, label, done, done
        self.total = done + len(work) if isinstance(work, Sized) else None
        self.remark = ""
        """A few words to show beside the count, such as the newest reward: drawn with the next advance."""
        self.display: bars.Progress | None = None

    def __enter__(self) -> Progress[T]:
        self.begun = self.last_line = time.monotonic()
        # ranks of a distributed run share the terminal: only the first one draws on it
        if CONSOLE.is_terminal and os.environ.get("RANK", "0") == "0":
            self.owner = not _shown
            self.display = _open_display() if self.owner else _shown[0]
            self.task = self.display.add_task(self.label, total=self.total, completed=self.done, remark="")
        return self

    def __exit__(self, *_: object) -> None:
        if self.display is None:
            self._write_line()
        elif self.owner:
            _shown.remove(self.display)
            self.display.stop()
        else:
            self.display.remove_task(self.task)

    def __iter__(self) -> Iterator[T]:
        with self:
            for item in self.work:
                yield item
                self.advance()

    def advance(self, count: int = 1) -> None:
        """`count` more are done."""
        self.done += count
        if self.display is not None:
            self.display.update(self.task, completed=self.done, remark=self.remark)
        elif time.monotonic() - self.last_line >= SECONDS_BETWEEN_LINES:
            self._write_line()

    def _write_line(self) -> None:
        self.last_line = time.monotonic()
        logger.info("%s %s", self.label, ", ".join(part for part in (self._count(), self.remark) if part))

    def _count(self) -> str:
        if self.total is None or self.done == self.first:
            return f"{self.done}/{'?' if self.total is None else self.total}"
        pace = (time.monotonic() - self.begun) / (self.done - self.first)
        return f"{self.done}/{self.total}, {timedelta(seconds=round(pace * (self.total - self.done)))} left"


@overload
def progress(work: int, label: str, *, done: int = 0) -> Progress[int]: ...
@overload
def progress(work: Iterable[T], label: str, *, done: int = 0) -> Progress[T]: ...
def progress(work: Iterable[T] | int, label: str, *, done: int = 0) -> Progress[T] | Progress[int]:
    """Follow `work`, or that many pieces of it; `done` were finished before a resumed run began."""
    return Progress(range(work), label, done=done) if isinstance(work, int) else Progress(work, label, done=done)


@contextmanager
def timed(seconds: dict[str, float], phase: str) -> Iterator[None]:
    """Notes how long a phase took."""
    began = time.perf_counter()
    yield
    seconds[phase] = time.perf_counter() - began


def _open_display() -> bars.Progress:
    display = bars.Progress(
        bars.TextColumn("{task.description}"),
        bars.BarColumn(),
        bars.MofNCompleteColumn(),
        bars.TimeElapsedColumn(),
        bars.TimeRemainingColumn(),
        bars.TextColumn("{task.fields[remark]}"),
        console=CONSOLE,
    )
    display.start()
    _shown.append(display)
    return display
