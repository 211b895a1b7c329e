"""SIGTERM, as a batch system sends it before it kills: the step under way is finished and saved, then the run ends."""

from __future__ import annotations

import os
import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType

from lookact.errors import Terminated

GRACE = "LOOKACT_GRACE"
GRACE_SECONDS = 90.0
"""How long a step may still take; SLURM jobs are told two minutes ahead (`--signal=TERM@120`)."""


class Termination:
    """What SIGTERM does in this process: ends it at once, or while `deferred` asks it to end after the step."""

    def __init__(self) -> None:
        self.asked = False
        self._deferred = 0
        self._process = os.getpid()

    @contextmanager
    def handled(self) -> Iterator[None]:
        """Take SIGTERM while a run is open; nothing changes outside the main thread, or where a run is open already."""
        ours = signal.getsignal(signal.SIGTERM) == self._on_signal
        if ours or threading.current_thread() is not threading.main_thread():
            yield
            return
        self.asked, self._deferred, self._process = False, 0, os.getpid()
        before = {name: signal.signal(name, self._on_signal) for name in (signal.SIGTERM, signal.SIGALRM)}
        try:
            yield
        finally:
            signal.setitimer(signal.ITIMER_REAL, 0.0)
            for name, handler in before.items():
                signal.signal(name, handler)

    @contextmanager
    def deferred(self) -> Iterator[None]:
        """Steps are under way: each of them is finished first, if it ends within the grace period."""
        self._deferred += 1
        try:
            yield
        finally:
            self._deferred -= 1

    def _on_signal(self, number: int, frame: FrameType | None) -> None:
        if os.getpid() != self._process:
            # a worker forked from a run has nothing to save
            signal.signal(number, signal.SIG_DFL)
            os.kill(os.getpid(), number)
        elif number == signal.SIGTERM and self._deferred and not self.asked:
            self.asked = True
            signal.setitimer(signal.ITIMER_REAL, float(os.environ.get(GRACE, GRACE_SECONDS)))
        else:
            # nothing to save, asked a second time, or out of time
            raise Terminated


TERMINATION = Termination()
