"""Vector environments: many side by side in worker processes with a watchdog, double-buffered, or in this process.

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
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from multiprocessing.connection import Connection, wait
from typing import Any

import numpy as np
from gymnasium.vector.utils import CloudpickleWrapper
from numpy.typing import NDArray

from lookact.envs.vector.worker import MakeEnv, Memory, RowStep, ask, parts_of, receive, share, work
from lookact.errors import ConfigError, EnvError
from lookact.seeding import derive
from lookact.types import EpisodePlan, PlanEpisode, VectorObservation, VectorStep

log = logging.getLogger(__name__)
START_SECONDS = 600.0
"""For a worker's first answer: on a busy machine imports and models of many environments take minutes."""


@dataclass
class _Worker:
    rows: tuple[int, ...]
    process: Any
    pipe: Connection
    started: bool = False
    """It has answered: its packages are imported and its environments made."""


class VectorEnv:
    """`num_envs` environments in `workers` processes."""

    def __init__(
        self,
        make_env: MakeEnv,
        num_envs: int,
        *,
        workers: int,
        first: int = 0,
        seed: int = 0,
        plan_episode: PlanEpisode | None = None,
        step_seconds: float = 30.0,
        start_seconds: float = START_SECONDS,
        reset_seconds: float = 120.0,
        max_restarts: int = 20,
    ) -> None:
        """`plan_episode` gives seeds and options; without it each row has its own stream under `seed`.

        Plans know the rows by numbers from `first` on. A worker's first answer may take `start_seconds`, any other
        reset `reset_seconds`, a step `step_seconds`.
        """
        if not 1 <= workers <= num_envs:
            raise ConfigError(f"{workers} workers for {num_envs} environments: give from 1 to {num_envs}")
        self.num_envs, self.first, self.seed = num_envs, first, seed
        self.plan_episode = plan_episode or (lambda row, episode: (derive(seed, "episode", row, episode), {}))
        self.step_seconds, self.reset_seconds, self.start_seconds = step_seconds, reset_seconds, start_seconds
        self.max_restarts = max_restarts
        self.restarts = 0
        """How often a worker was started again."""
        self.episodes = [0] * num_envs
        """How many episodes each row has begun."""
        self._failed: dict[int, EnvError] = {}
        self._make_env = CloudpickleWrapper(make_env)
        self._allocate(make_env)
        self._workers = [self._start(tuple(range(row, num_envs, workers))) for row in range(workers)]

    @property
    def parts(self) -> tuple[VectorEnv]:
        """All rows step together."""
        return (self,)

    def reset(self, plan_episode: PlanEpisode | None = None) -> tuple[VectorObservation, tuple[dict[str, Any], ...]]:
        """Every row begins its next episode, or its first of another plan."""
        if plan_episode is not None:
            self.plan_episode, self.episodes = plan_episode, [0] * self.num_envs
        infos: list[dict[str, Any]] = [{}] * self.num_envs
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
        ordered = [results[row] for row in range(self.num_envs)]
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
        states: list[Any] = [None] * self.num_envs
        for worker, reply in zip(self._workers, self._exchange([("state", ())] * len(self._workers))):
            if isinstance(reply, EnvError):
                raise EnvError(f"a worker did not tell its state: {reply}")
            for row, state in zip(worker.rows, reply):
                states[row] = state
        return {"episodes": list(self.episodes), "restarts": self.restarts, "envs": states}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Go on where `state_dict` was taken."""
        self.episodes, self.restarts = list(state["episodes"]), state["restarts"]
        commands = [("load", ([state["envs"][row] for row in worker.rows],)) for worker in self._workers]
        for worker, reply in zip(self._workers, self._exchange(commands)):
            if isinstance(reply, EnvError):
                raise EnvError(f"a worker did not take its state: {reply}")
            for row, texts in zip(worker.rows, reply):
                self._set_texts(row, texts)
        self._observe()

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
        kept = [{name: share((self.num_envs, *box.shape), box.dtype) for name, box in boxes.items()} for _ in range(2)]
        self._memory = Memory(share((self.num_envs, *shape), dtype), kept[0], kept[1])
        self._actions = self._memory.actions.array()
        self._shown = {name: shared.array() for name, shared in kept[0].items()}
        self._ended = {name: shared.array() for name, shared in kept[1].items()}
        self._texts = {name: [""] * self.num_envs for name in texts}
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
        started = all(worker.started for worker in self._workers)
        replies = self._hear(self._tell(messages), self.reset_seconds if started else self.start_seconds)
        for worker, reply in zip(self._workers, replies):
            worker.started = worker.started or not isinstance(reply, EnvError)
        return replies

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
            worker.process, worker.pipe, worker.started = fresh.process, fresh.pipe, False
            reply = ask(worker.pipe, ("reset", (self._next_plans(worker.rows),)), self.start_seconds)
            if not isinstance(reply, EnvError):
                worker.started = True
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
        self._last = _copied(self._shown, self._texts)
        return self._last


class PipelinedVectorEnv:
    """Double-buffered: half of the environments step while the policy evaluates the other half.

    There are about `workers` processes, at least one for each half. Which rows a half holds depends on nothing but how
    many there are, so that a rollout comes out the same however many processes simulate it.
    """

    def __init__(self, make_env: MakeEnv, num_envs: int, *, workers: int, **watch: Any) -> None:
        """`watch` are `VectorEnv`'s timeouts and largest number of restarts."""
        first = num_envs - num_envs // 2
        halves = {0: first, first: num_envs // 2} if num_envs > 1 else {0: 1}
        self.num_envs = num_envs
        self.parts = tuple(
            VectorEnv(make_env, count, workers=min(count, max(1, workers // 2)), first=start, **watch)
            for start, count in halves.items()
        )
        self.observation_space, self.action_space = self.parts[0].observation_space, self.parts[0].action_space

    @property
    def restarts(self) -> int:
        """How often a worker was started again."""
        return sum(part.restarts for part in self.parts)

    def close(self) -> None:
        for part in self.parts:
            part.close()


class InlineVectorEnv:
    """`num_envs` environments of this process, one after another: for those so light that a message costs more."""

    restarts = 0

    def __init__(
        self, make_env: MakeEnv, num_envs: int, *, seed: int = 0, plan_episode: PlanEpisode | None = None
    ) -> None:
        """`plan_episode` gives seeds and options; without it each row has its own stream under `seed`."""
        self.num_envs = num_envs
        self.plan_episode = plan_episode or (lambda row, episode: (derive(seed, "episode", row, episode), {}))
        self.episodes = [0] * num_envs
        """How many episodes each row has begun."""
        self.envs = [make_env() for _ in range(num_envs)]
        self.observation_space, self.action_space = self.envs[0].observation_space, self.envs[0].action_space
        boxes, self._names = parts_of(self.observation_space)
        self._shown = {name: np.zeros((num_envs, *box.shape), box.dtype) for name, box in boxes.items()}
        self._texts = {name: [""] * num_envs for name in self._names}
        self._actions = np.zeros((num_envs, *(self.action_space.shape or ())), np.float32)

    @property
    def parts(self) -> tuple[InlineVectorEnv]:
        """All rows step together."""
        return (self,)

    def reset(self, plan_episode: PlanEpisode | None = None) -> tuple[VectorObservation, tuple[dict[str, Any], ...]]:
        """Every row begins its next episode, or its first of another plan."""
        if plan_episode is not None:
            self.plan_episode, self.episodes = plan_episode, [0] * self.num_envs
        infos = tuple(self._begin(row) for row in range(self.num_envs))
        return _copied(self._shown, self._texts), infos

    def send(self, actions: NDArray[np.float32]) -> None:
        """Keep one action (rows, a) each until `receive`: there is nobody to begin before that."""
        self._actions = actions

    def receive(self) -> VectorStep:
        """The step that was asked for."""
        return self.step(self._actions)

    def step(self, actions: NDArray[np.float32]) -> VectorStep:
        """One action (rows, a) each."""
        rewards = np.zeros(self.num_envs, np.float32)
        terminated, truncated = np.zeros(self.num_envs, np.bool_), np.zeros(self.num_envs, np.bool_)
        infos: list[dict[str, Any]] = []
        finals: dict[int, dict[str, Any]] = {}
        for row, env in enumerate(self.envs):
            shown, reward, ended, cut, info = env.step(actions[row])
            rewards[row] = reward
            infos.append(info)
            if ended or cut:
                terminated[row], truncated[row] = ended, cut
                finals[row] = dict(_parts(shown))
                self._begin(row)
            else:
                self._write(row, shown)
        return VectorStep(_copied(self._shown, self._texts), rewards, terminated, truncated, tuple(infos), finals)

    def close(self) -> None:
        for env in self.envs:
            env.close()

    def _begin(self, row: int) -> dict[str, Any]:
        seed, options = self.plan_episode(row, self.episodes[row])
        self.episodes[row] += 1
        shown, info = self.envs[row].reset(seed=seed, options=dict(options))
        self._write(row, shown)
        return info

    def _write(self, row: int, shown: Any) -> None:
        parts = _parts(shown)
        for name, array in self._shown.items():
            array[row] = parts[name]
        for name in self._names:
            self._texts[name][row] = str(parts[name])


def _parts(shown: Any) -> Mapping[str, Any]:
    return shown if isinstance(shown, dict) else {"state": shown}


def _copied(arrays: Mapping[str, NDArray[Any]], texts: Mapping[str, Sequence[str]]) -> VectorObservation:
    copies = {name: array.copy() for name, array in arrays.items()}
    return VectorObservation(copies, {name: tuple(each) for name, each in texts.items()})


def _kill(worker: _Worker) -> None:
    worker.pipe.close()
    worker.process.kill()
    worker.process.join()
