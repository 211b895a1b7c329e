"""An environment in a process of its own: for simulators in Python that are slow, and for those that may hang."""

from __future__ import annotations

import multiprocessing
import signal
from collections.abc import Callable, Mapping
from multiprocessing.connection import Connection
from typing import Any

from gymnasium.vector.utils import CloudpickleWrapper

from lookact.envs.vector.worker import ask
from lookact.errors import EnvError
from lookact.protocols import Env
from lookact.types import Observation


class ProcessEnv:
    """An `Env` that `make_env` makes in a new process. One that hangs or dies raises, and is made anew at its reset."""

    def __init__(self, make_env: Callable[[], Env], *, timeout_s: float) -> None:
        self.timeout_s = timeout_s
        self._make_env: Any = CloudpickleWrapper(make_env)
        self._process: Any = None
        self._pipe: Connection | None = None

    def reset(self, *, seed: int, options: Mapping[str, Any]) -> tuple[Observation, Mapping[str, Any]]:
        if self._pipe is None:
            context = multiprocessing.get_context("spawn")
            self._pipe, theirs = context.Pipe()
            self._process = context.Process(target=_serve, args=(theirs, self._make_env), daemon=True)
            self._process.start()
            # with our copy of their end closed, a dead process reads as end of file
            theirs.close()
        shown: tuple[Observation, Mapping[str, Any]] = self._ask("reset", {"seed": seed, "options": options})
        return shown

    def step(self, action: Any) -> tuple[Observation, float, bool, bool, Mapping[str, Any]]:
        stepped: tuple[Observation, float, bool, bool, Mapping[str, Any]] = self._ask("step", {"action": action})
        return stepped

    def close(self) -> None:
        """End the process, whatever it is doing."""
        if self._pipe is not None:
            self._pipe.close()
            self._process.kill()
            self._process.join()
            self._pipe = None

    def _ask(self, method: str, arguments: Mapping[str, Any]) -> Any:
        if self._pipe is None:
            raise EnvError("this environment has no process: reset it first")
        reply = ask(self._pipe, (method, arguments), self.timeout_s)
        if isinstance(reply, EnvError):
            self.close()
            raise reply
        answer, error = reply
        if error:
            raise EnvError(error)
        return answer


def _serve(pipe: Connection, make_env: Callable[[], Env]) -> None:
    """Answer calls until the parent is gone; what the environment raises is an answer too."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    env: Env | None = None
    try:
        while True:
            method, arguments = pipe.recv()
            try:
                env = env or make_env()
                pipe.send((getattr(env, method)(**arguments), ""))
            except Exception as error:
                pipe.send((None, f"{type(error).__name__}: {error}"))
    except (EOFError, OSError):
        return
