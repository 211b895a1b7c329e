"""One process of a vector environment: steps its environments on command, observations go to shared memory."""

from __future__ import annotations

import multiprocessing
import signal
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from multiprocessing.connection import Connection
from typing import Any

import gymnasium
import numpy as np
from gymnasium import spaces
from numpy.typing import NDArray

from lookact.errors import EnvError
from lookact.types import EpisodePlan

MakeEnv = Callable[[], gymnasium.Env[Any, Any]]
Arrays = dict[str, NDArray[Any]]


@dataclass(frozen=True)
class SharedArray:
    """An array that parent and workers both see."""

    memory: Any
    shape: tuple[int, ...]
    dtype: str

    def array(self) -> NDArray[Any]:
        return np.frombuffer(self.memory, self.dtype).reshape(self.shape)


def share(shape: tuple[int, ...], dtype: Any) -> SharedArray:
    """Shared zeros."""
    size = int(np.prod(shape)) * np.dtype(dtype).itemsize
    return SharedArray(multiprocessing.get_context("spawn").RawArray("b", max(size, 1)), shape, np.dtype(dtype).str)


@dataclass(frozen=True)
class Memory:
    """All that lies in shared memory, each array with one entry a row."""

    actions: SharedArray
    observations: dict[str, SharedArray]
    finals: dict[str, SharedArray]
    """The observation after an episode's last step, where one just ended."""


@dataclass(frozen=True)
class RowStep:
    """What one row's step came to, without the arrays."""

    reward: float
    terminated: bool
    truncated: bool
    info: dict[str, Any]
    texts: dict[str, str]
    """Of the observation that the next action is for."""
    final_texts: dict[str, str] | None = None
    """Of the ended episode's last observation."""


def parts_of(space: spaces.Space[Any]) -> tuple[dict[str, spaces.Box], tuple[str, ...]]:
    """The arrays and the texts that an observation is made of; a plain box is called `state`."""
    inside = dict(space.spaces) if isinstance(space, spaces.Dict) else {"state": space}
    boxes = {name: part for name, part in inside.items() if isinstance(part, spaces.Box)}
    texts = tuple(name for name, part in inside.items() if isinstance(part, spaces.Text))
    if rest := set(inside) - set(boxes) - set(texts):
        raise EnvError(f"observations {sorted(rest)} are neither boxes nor texts: wrap the environment")
    return boxes, texts


def ask(pipe: Connection, message: tuple[str, Any], seconds: float) -> Any:
    """A worker's reply, or an EnvError."""
    try:
        pipe.send(message)
    except OSError:
        return EnvError("the worker died")
    return receive(pipe) if pipe.poll(seconds) else EnvError(f"the worker did not answer in {seconds:g} s")


def receive(pipe: Connection) -> Any:
    """What a worker sent, or an EnvError."""
    try:
        return pipe.recv()
    except (EOFError, OSError):
        return EnvError("the worker died")


def work(pipe: Connection, make_env: MakeEnv, rows: Sequence[int], memory: Memory) -> None:
    """Serve commands until closed or the parent is gone. An exception is reported and ends the process."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    try:
        _RequestHandler(make_env, rows, memory).serve(pipe)
    except (EOFError, BrokenPipeError):
        return
    except Exception as error:
        pipe.send(EnvError(f"{type(error).__name__}: {error}"))


class _RequestHandler:
    """The environments of one process."""

    def __init__(self, make_env: MakeEnv, rows: Sequence[int], memory: Memory) -> None:
        self.rows = rows
        self.envs = [make_env() for _ in rows]
        self.texts = parts_of(self.envs[0].observation_space)[1]
        self.actions = memory.actions.array()
        self.observations = {name: shared.array() for name, shared in memory.observations.items()}
        self.finals = {name: shared.array() for name, shared in memory.finals.items()}

    def serve(self, pipe: Connection) -> None:
        commands: dict[str, Callable[..., Any]] = {
            "reset": self.reset,
            "step": self.step,
            "state": self.state,
            "load": self.load,
        }
        while True:
            command, arguments = pipe.recv()
            if command == "close":
                break
            pipe.send(commands[command](*arguments))
        for env in self.envs:
            env.close()

    def reset(self, plans: Sequence[EpisodePlan]) -> list[tuple[dict[str, Any], dict[str, str]]]:
        return [self._begin(*slot) for slot in zip(self.rows, self.envs, plans)]

    def step(self, plans: Sequence[EpisodePlan]) -> list[RowStep]:
        return [self._step(*slot) for slot in zip(self.rows, self.envs, plans)]

    def state(self) -> list[dict[str, Any]]:
        return [env.unwrapped.state_dict() for env in self.envs]  # type: ignore[attr-defined]

    def load(self, states: Sequence[Mapping[str, Any]]) -> list[dict[str, str]]:
        shown = [env.unwrapped.load_state_dict(state) for env, state in zip(self.envs, states)]  # type: ignore[attr-defined]
        return [self._write(self.observations, row, seen) for row, seen in zip(self.rows, shown)]

    def _begin(
        self, row: int, env: gymnasium.Env[Any, Any], plan: EpisodePlan
    ) -> tuple[dict[str, Any], dict[str, str]]:
        seed, options = plan
        shown, info = env.reset(seed=seed, options=dict(options))
        return info, self._write(self.observations, row, shown)

    def _step(self, row: int, env: gymnasium.Env[Any, Any], plan: EpisodePlan) -> RowStep:
        shown, reward, terminated, truncated, info = env.step(self.actions[row].copy())
        if not (terminated or truncated):
            return RowStep(float(reward), False, False, info, self._write(self.observations, row, shown))
        final_texts = self._write(self.finals, row, shown)
        _, texts = self._begin(row, env, plan)
        return RowStep(float(reward), bool(terminated), bool(truncated), info, texts, final_texts)

    def _write(self, arrays: Arrays, row: int, shown: Any) -> dict[str, str]:
        """Put the arrays into shared memory and return the texts."""
        parts = shown if isinstance(shown, dict) else {"state": shown}
        for name, array in arrays.items():
            array[row] = parts[name]
        return {name: str(parts[name]) for name in self.texts}
