"""Many environments side by side in a few processes, with a watchdog.

Autoreset happens in the same step. Where an episode ends at a step, `observations` already holds the next episode's
first observation, the one the next action is for; the ended episode's last observation is in `finals`, and a truncated
episode is bootstrapped from there. `rewards`, `terminated`, `truncated` and `infos` belong to the episode that ended.
The n-th episode of a row has the same seed however many processes there are.

A worker that raises, dies, or does not answer in time is killed and started again. The episodes on its rows end there:
reward 0, truncated, `info["worker_restarted"]` True, and the last observation before the accident as their final one.
"""

from __future__ import annotations

import logging
import multiprocessing
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from multiprocessing.connection import Connection, wait
from typing import Any

import numpy as np
from gymnasium.vector.utils import CloudpickleWrapper
from numpy.typing import NDArray

from lookact.envs.vector.worker import (
    Arrays,
    EpisodePlan,
    MakeEnv,
    Memory,
    RowStep,
    ask,
    parts_of,
    receive,
    share,
    work,
)
from lookact.errors import ConfigError, EnvError
from lookact.seeding import derive

log = logging.getLogger(__name__)

PlanEpisode = Callable[[int, int], EpisodePlan]
"""Seed and options of a row's n-th episode."""


@dataclass(frozen=True)
class VectorObservation:
    """What all rows are shown."""

    arrays: Arrays
    """Name to (rows, ...)."""
    texts: dict[str, tuple[str, ...]]
    """Name to one text a row."""

    def row(self, row: int) -> dict[str, Any]:
        """One row as the environment itself shows it."""
        arrays = {name: array[row] for name, array in self.arrays.items()}
        return arrays | {name: texts[row] for name, texts in self.texts.items()}


@dataclass(frozen=True)
class VectorStep:
    """One step of all rows."""

    observations: VectorObservation
    rewards: NDArray[np.float32]
    terminated: NDArray[np.bool_]
    truncated: NDArray[np.bool_]
    infos: tuple[dict[str, Any], ...]
    finals: dict[int, dict[str, Any]]
    """Of rows whose episode ended: the observation after its last step."""


@dataclass
class _Worker:
    rows: tuple[int, ...]
    process: Any
    pipe: Connection


class VectorEnv:
    """`rows` environments in `workers` processes."""

    def __init__(
        self,
        make_env: MakeEnv,
        rows: int,
        *,
        workers: int,
        first: int = 0,
        seed: int = 0,
        plan_episode: PlanEpisode | None = None,
        step_seconds: float = 30.0,
        start_seconds: float = 120.0,
        max_restarts: int = 20,
    ) -> None:
        """`plan_episode` gives seeds and options; without it each row has its own stream under `seed`.

        Plans know the rows by numbers from `first` on.
        """
        if not 1 <= workers <= rows:
            raise ConfigError(f"{workers} workers for {rows} rows: give at least one, and no more than rows")
        self.rows, self.first, self.seed = rows, first, seed
        self.plan_episode = plan_episode or (lambda row, episode: (derive(seed, "episode", row, episode), {}))
        self.step_seconds, self.start_seconds, self.max_restarts = step_seconds, start_seconds, max_restarts
        self.restarts = 0
        """How often a worker was started again."""
        self.episodes = [0] * rows
        """How many episodes each row has begun."""
        self._failed: dict[int, EnvError] = {}
        self._make_env = CloudpickleWrapper(make_env)
        self._allocate(make_env)
        self._workers = [self._start(tuple(range(row, rows, workers))) for row in range(workers)]

    @property
    def parts(self) -> tuple[VectorEnv]:
        """All rows step together."""
        return (self,)

    def reset(self, plan_episode: PlanEpisode | None = None) -> tuple[VectorObservation, tuple[dict[str, Any], ...]]:
        """Every row begins its next episode, or its first of another plan."""
        if plan_episode is not None:
            self.plan_episode, self.episodes = plan_episode, [0] * self.rows
        infos: list[dict[str, Any]] = [{}] * self.rows
        replies = self._exchange([("reset", (self._next_plans(worker.rows),)) for worker in self._workers])
        for worker, reply in zip(self._workers, replies):
            begun = self._restart(worker, reply) if isinstance(reply, EnvError) else reply
            for row, (info, texts) in zip(worker.rows, begun):
                infos[row] = info
                self._set_texts(row, texts)
        return self._observe(), tuple(infos)

    def step(self, actions: NDArray[np.float32]) -> VectorStep:
        """One action (rows, a) each."""
        self.send(actions)
        return self.receive()

    def send(self, actions: NDArray[np.float32]) -> None:
        """Begin a step of one action (rows, a) each; `receive` it before the next."""
        self._actions[...] = actions
        upcoming = [[self._plan(row, ahead=1) for row in worker.rows] for worker in self._workers]
        self._failed = self._tell([("step", (plans,)) for plans in upcoming])

    def receive(self) -> VectorStep:
        """The step that was begun; a worker has `step_seconds` from now on."""
        replies = self._hear(self._failed, self.step_seconds)
        results: dict[int, RowStep] = {}
        finals: dict[int, dict[str, Any]] = {}
        for worker, reply in zip(self._workers, replies):
            before = {row: self._last.row(row) for row in worker.rows}
            steps = self._cut_short(worker, reply) if isinstance(reply, EnvError) else reply
            for row, step in zip(worker.rows, steps):
                results[row] = step
                if step.terminated or step.truncated:
                    finals[row] = before[row] if isinstance(reply, EnvError) else self._final(row, step)
                    self.episodes[row] += not isinstance(reply, EnvError)
                self._set_texts(row, step.texts)
        ordered = [results[row] for row in range(self.rows)]
        return VectorStep(
            self._observe(),
            np.array([step.reward for step in ordered], np.float32),
            np.array([step.terminated for step in ordered]),
            np.array([step.truncated for step in ordered]),
            tuple(step.info for step in ordered),
            finals,
        )

    def state_dict(self) -> dict[str, Any]:
        """Every episode as it stands; the environments must offer the same."""
        states: list[Any] = [None] * self.rows
        for worker, reply in zip(self._workers, self._exchange([("state", ())] * len(self._workers))):
            if isinstance(reply, EnvError):
                raise EnvError(f"a worker did not tell its state: {reply}")
            for row, state in zip(worker.rows, reply):
                states[row] = state
        return {"episodes": list(self.episodes), "restarts": self.restarts, "envs": states}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Go on where `state_dict` was taken; `observations` holds what is seen there."""
        self.episodes, self.restarts = list(state["episodes"]), state["restarts"]
        commands = [("load", ([state["envs"][row] for row in worker.rows],)) for worker in self._workers]
        for worker, reply in zip(self._workers, self._exchange(commands)):
            if isinstance(reply, EnvError):
                raise EnvError(f"a worker did not take its state: {reply}")
            for row, texts in zip(worker.rows, reply):
                self._set_texts(row, texts)
        self._observe()

    @property
    def observations(self) -> VectorObservation:
        """What all rows were last shown."""
        return self._last

    def close(self) -> None:
        """Stop all workers; those that do not stop are killed."""
        for worker in self._workers:
            try:
                worker.pipe.send(("close", ()))
            except OSError:
                log.debug("a worker was gone before it was told to close")
        for worker in self._workers:
            worker.process.join(timeout=5)
            _kill(worker)
        self._workers = []

    def _allocate(self, make_env: MakeEnv) -> None:
        probe = make_env()
        boxes, texts = parts_of(probe.observation_space)
        self.observation_space, self.action_space = probe.observation_space, probe.action_space
        shape, dtype = self.action_space.shape, self.action_space.dtype
        probe.close()
        if shape is None:
            raise EnvError(f"actions of {self.action_space} have no shape: only arrays pass through shared memory")
        kept = [{name: share((self.rows, *box.shape), box.dtype) for name, box in boxes.items()} for _ in range(2)]
        self._memory = Memory(share((self.rows, *shape), dtype), kept[0], kept[1])
        self._actions = self._memory.actions.array()
        self._shown = {name: shared.array() for name, shared in kept[0].items()}
        self._ended = {name: shared.array() for name, shared in kept[1].items()}
        self._texts = {name: [""] * self.rows for name in texts}
        self._last = VectorObservation({}, {})

    def _start(self, rows: tuple[int, ...]) -> _Worker:
        context = multiprocessing.get_context("spawn")
        pipe, theirs = context.Pipe()
        process = context.Process(target=work, args=(theirs, self._make_env, rows, self._memory), daemon=True)
        process.start()
        # with our copy of their end closed, a dead worker reads as end of file
        theirs.close()
        return _Worker(rows, process, pipe)

    def _plan(self, row: int, *, ahead: int = 0) -> EpisodePlan:
        return self.plan_episode(self.first + row, self.episodes[row] + ahead - 1)

    def _next_plans(self, rows: Sequence[int]) -> list[EpisodePlan]:
        for row in rows:
            self.episodes[row] += 1
        return [self._plan(row) for row in rows]

    def _exchange(self, messages: Sequence[tuple[str, tuple[Any, ...]]]) -> list[Any]:
        """One reply a worker; an EnvError where it failed, died or ran out of time."""
        return self._hear(self._tell(messages), self.start_seconds)

    def _tell(self, messages: Sequence[tuple[str, tuple[Any, ...]]]) -> dict[int, EnvError]:
        """One message a worker; errors of those that are gone."""
        gone = {}
        for index, (worker, message) in enumerate(zip(self._workers, messages)):
            try:
                worker.pipe.send(message)
            except OSError:
                gone[index] = EnvError("the worker died")
        return gone

    def _hear(self, failed: Mapping[int, EnvError], seconds: float) -> list[Any]:
        """One reply a worker that has not failed already."""
        replies: dict[int, Any] = dict(failed)
        deadline = time.monotonic() + seconds
        while waiting := {worker.pipe: index for index, worker in enumerate(self._workers) if index not in replies}:
            ready = wait(list(waiting), max(0.0, deadline - time.monotonic()))
            for pipe, index in waiting.items():
                if pipe in ready:
                    replies[index] = receive(pipe)
                elif not ready:
                    replies[index] = EnvError(f"the worker did not answer in {seconds:g} s")
        return [replies[index] for index in range(len(self._workers))]

    def _restart(self, worker: _Worker, reason: EnvError) -> list[tuple[dict[str, Any], dict[str, str]]]:
        """Start the worker's process again, and the next episode on each of its rows."""
        while True:
            self.restarts += 1
            _kill(worker)
            if self.restarts > self.max_restarts:
                raise EnvError(f"workers were restarted {self.max_restarts} times, the last because: {reason}")
            log.warning("rows %s are started again: %s", list(worker.rows), reason)
            fresh = self._start(worker.rows)
            worker.process, worker.pipe = fresh.process, fresh.pipe
            reply = ask(worker.pipe, ("reset", (self._next_plans(worker.rows),)), self.start_seconds)
            if not isinstance(reply, EnvError):
                return [(info | {"worker_restarted": True}, texts) for info, texts in reply]
            reason = reply

    def _cut_short(self, worker: _Worker, reason: EnvError) -> list[RowStep]:
        """The worker's rows end their episodes and begin the next."""
        info = {"worker_restarted": True, "reason": str(reason), "success": False}
        return [RowStep(0.0, False, True, dict(info), texts) for _, texts in self._restart(worker, reason)]

    def _final(self, row: int, step: RowStep) -> dict[str, Any]:
        arrays: Mapping[str, Any] = {name: array[row].copy() for name, array in self._ended.items()}
        return {**arrays, **(step.final_texts or {})}

    def _set_texts(self, row: int, texts: Mapping[str, str]) -> None:
        for name, text in texts.items():
            self._texts[name][row] = text

    def _observe(self) -> VectorObservation:
        arrays = {name: array.copy() for name, array in self._shown.items()}
        self._last = VectorObservation(arrays, {name: tuple(texts) for name, texts in self._texts.items()})
        return self._last


def _kill(worker: _Worker) -> None:
    worker.pipe.close()
    worker.process.kill()
    worker.process.join()
