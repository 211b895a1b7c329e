"""Episode specs, the environments they run in, and the loop where these meet actors: nobody waits who need not.

An episode's content depends on its spec and the weights, not on who answers first: every row draws from a stream of its
own. Which rows act together changes sums in their last bits, so without threads it depends on the specs alone.
"""

from __future__ import annotations

import logging
import time
from collections import deque
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from functools import partial
from queue import Empty, SimpleQueue

from lookact.envs.wrappers.process_env import ProcessEnv
from lookact.errors import EnvError
from lookact.protocols import Actor, ContinuousActor, Env
from lookact.rollout.samplers.settings import Concurrency
from lookact.seeding import derive
from lookact.types import Decision, Episode, EpisodeSpec, Observation, Turn

log = logging.getLogger(__name__)
PATIENCE = 0.25
"""How long a batch waits for one more row, as a share of the seconds that acting took last."""
POLL_SECONDS = 0.005
"""How long an engine is waited for while environments step in threads."""


def make_specs(seed: int, split: str, *, groups: int, size: int = 1, step: int = 0) -> list[EpisodeSpec]:
    """`groups` starts with `size` episodes each; splits of other names share no room."""
    specs = []
    for group in range(groups):
        path = (split, step, group)
        options = {"scene_seed": derive(seed, "scene", *path), "start_seed": derive(seed, "start", *path)}
        for copy in range(size):
            name = f"{split}-{step:05d}-{group:04d}-{copy:02d}"
            specs.append(EpisodeSpec(id=name, group=group, seed=derive(seed, "episode", *path, copy), options=options))
    return specs


@dataclass
class _Running:
    index: int
    """Of its spec."""
    spec: EpisodeSpec
    env: Env
    observation: Observation | None = None
    turns: list[Turn] = field(default_factory=list)
    error: str | None = None

    @property
    def over(self) -> bool:
        return self.error is not None or (bool(self.turns) and (self.turns[-1].terminated or self.turns[-1].truncated))


def collect(
    specs: Sequence[EpisodeSpec],
    envs: Sequence[Env],
    actor: Actor,
    *,
    threads: bool = False,
    finished: Callable[[Episode], None] | None = None,
    keep: bool = True,
) -> list[Episode]:
    """Runs an episode per spec, as many at a time as there are environments.

    Episodes come back in the order of `specs`; in this order `finished` hears of each when those before it have ended.
    Without `keep` that is the last of it: none comes back, and no more are held than wait for an earlier one.
    With `threads` environments step at the same time, the actor acts on the
    rows that are ready, and a row whose episode has ended takes the next spec at once. An environment that raises ends
    its episode with `Episode.error` set; the others go on.
    """
    if specs and not envs:
        raise EnvError(f"{len(specs)} specs and no environment to run them in: give at least one")
    calls: InlineCalls | ThreadedCalls = ThreadedCalls(len(envs)) if threads and specs else InlineCalls()
    try:
        rollout = _Rollout(specs, envs, actor, calls, finished, keep)
        if isinstance(actor, ContinuousActor):
            rollout.run_continuously(actor)
        else:
            rollout.run_in_batches()
    finally:
        calls.close()
    return [rollout.ended[index] for index in sorted(rollout.ended)]


class EnvPool:
    """Runs episodes in environments that it keeps from call to call; a context that closes them."""

    def __init__(self, make_env: Callable[[], Env], concurrency: Concurrency) -> None:
        """`make_env` must pickle where environments step in processes."""
        self.concurrency, self.envs = concurrency, list[Env]()
        self.threads = concurrency.env_workers != "none"
        self.make_env: Callable[[], Env] = make_env
        if concurrency.env_workers == "processes":
            self.make_env = partial(ProcessEnv, make_env, timeout_s=concurrency.env_timeout_s)

    def collect(
        self,
        specs: Sequence[EpisodeSpec],
        actor: Actor,
        *,
        finished: Callable[[Episode], None] | None = None,
        keep: bool = True,
    ) -> list[Episode]:
        """The episodes of `specs`, in their order, at most `max_concurrent_episodes` side by side."""
        most = min(len(specs), self.concurrency.max_concurrent_episodes or len(specs))
        self.envs += [self.make_env() for _ in range(most - len(self.envs))]
        return collect(specs, self.envs[:most], actor, threads=self.threads, finished=finished, keep=keep)

    def close(self) -> None:
        for env in self.envs:
            env.close()

    def __enter__(self) -> EnvPool:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


class _Rollout:
    """The episodes that wait, run and have ended."""

    def __init__(
        self,
        specs: Sequence[EpisodeSpec],
        envs: Sequence[Env],
        actor: Actor,
        calls: InlineCalls | ThreadedCalls,
        finished: Callable[[Episode], None] | None,
        keep: bool,
    ) -> None:
        self.envs, self.actor, self.calls, self.finished, self.keep = envs, actor, calls, finished, keep
        self.waiting = deque(enumerate(specs))
        self.running: dict[int, _Running] = {}
        """By row."""
        self.ended: dict[int, Episode] = {}
        """By the spec's index."""
        self.told = 0
        """Episodes that `finished` was called with: in the order of their specs, whoever ends first."""
        # in one thread rows of a batch begin together: to let new ones join costs a Hugging Face sampler 4 to 8% more
        self.joins = isinstance(calls, ThreadedCalls) or isinstance(actor, ContinuousActor)
        self._start_free_rows()

    def run_in_batches(self) -> None:
        """The actor acts on all rows that are ready: without threads these are all that run."""
        patience = POLL_SECONDS
        while rows := self._ready(patience):
            began = time.perf_counter()
            decisions = self.actor.act(rows, [self._shown(row) for row in rows])
            patience = PATIENCE * (time.perf_counter() - began)
            for row, decision in zip(rows, decisions):
                self._step(row, decision)

    def run_continuously(self, actor: ContinuousActor) -> None:
        """Every row is a conversation of its own, which waits for no other row."""
        asked = 0
        while self.running:
            while self.calls.pending and (came := self.calls.take(0.0 if asked else None)):
                for row in self._go_on(came):
                    actor.send(row, self._shown(row))
                    asked += 1
            for row, decision in actor.receive(POLL_SECONDS if self.calls.pending else None) if asked else ():
                asked -= 1
                self._step(row, decision)

    def _ready(self, patience: float) -> list[int]:
        """The rows that are ready, once no other has come for `patience` seconds or all are there."""
        ready: list[int] = []
        while self.calls.pending and (came := self.calls.take(patience if ready else None)):
            ready += self._go_on(came)
        return sorted(ready)

    def _go_on(self, rows: Sequence[int]) -> list[int]:
        """The rows to be acted on; the others' episodes are over, and they take the next specs."""
        over = [row for row in rows if self.running[row].over]
        for row in over:
            self._end(row)
        if over and (self.joins or not self.running):
            self._start_free_rows()
        return [row for row in rows if row not in over]

    def _start_free_rows(self) -> None:
        free = [row for row in range(len(self.envs)) if row not in self.running]
        for row in free[: len(self.waiting)]:
            index, spec = self.waiting.popleft()
            slot = self.running[row] = _Running(index, spec, self.envs[row])
            self.actor.begin(row, spec.seed)
            self.calls.submit(row, partial(_reset, slot))

    def _step(self, row: int, decision: Decision) -> None:
        slot = self.running[row]
        self.calls.submit(row, partial(_step, slot, decision))

    def _end(self, row: int) -> None:
        slot = self.running.pop(row)
        self.actor.end(row)
        self.ended[slot.index] = _episode(slot, self.actor.version)
        while self.told in self.ended:
            if self.finished is not None:
                self.finished(self.ended[self.told])
            if not self.keep:
                del self.ended[self.told]
            self.told += 1

    def _shown(self, row: int) -> Observation:
        observation = self.running[row].observation
        assert observation is not None
        return observation


class InlineCalls:
    """Calls of environments, one after another in this thread."""

    def __init__(self) -> None:
        self._done: list[int] = []

    @property
    def pending(self) -> int:
        """Calls that were not taken yet."""
        return len(self._done)

    def submit(self, row: int, call: Callable[[], None]) -> None:
        call()
        self._done.append(row)

    def take(self, timeout_s: float | None) -> list[int]:
        """The rows whose calls are done."""
        done, self._done = self._done, []
        return done

    def close(self) -> None:
        pass


class ThreadedCalls:
    """Calls of environments side by side: for those that wait for a process, a network or a clock."""

    def __init__(self, threads: int) -> None:
        self._pool = ThreadPoolExecutor(threads, thread_name_prefix="env")
        self._done: SimpleQueue[int] = SimpleQueue()
        self.pending = 0
        """Calls that were not taken yet."""

    def submit(self, row: int, call: Callable[[], None]) -> None:
        self.pending += 1
        self._pool.submit(self._run, row, call)

    def take(self, timeout_s: float | None) -> list[int]:
        """The rows whose calls are done: waits for the first, at most `timeout_s` seconds."""
        done = []
        try:
            done.append(self._done.get(timeout=timeout_s))
            while True:
                done.append(self._done.get_nowait())
        except Empty:
            self.pending -= len(done)
            return done

    def close(self) -> None:
        self._pool.shutdown(wait=False, cancel_futures=True)

    def _run(self, row: int, call: Callable[[], None]) -> None:
        try:
            call()
        finally:
            self._done.put(row)


def _reset(slot: _Running) -> None:
    try:
        slot.observation, _ = slot.env.reset(seed=slot.spec.seed, options=slot.spec.options)
    except Exception as error:
        _fail(slot, error)


def _step(slot: _Running, decision: Decision) -> None:
    assert slot.observation is not None
    try:
        seen, reward, terminated, truncated, info = slot.env.step(decision.action)
    except Exception as error:
        _fail(slot, error)
        return
    slot.turns.append(Turn(slot.observation, decision, float(reward), terminated, truncated, info))
    slot.observation = seen


def _fail(slot: _Running, error: Exception) -> None:
    slot.error = f"{type(error).__name__}: {error}"
    log.warning("episode %s ended early: %s", slot.spec.id, slot.error)


def _episode(slot: _Running, version: int) -> Episode:
    return Episode(
        id=slot.spec.id,
        group=slot.spec.group,
        seed=slot.spec.seed,
        turns=tuple(slot.turns),
        last=slot.observation,
        policy_version=version,
        error=slot.error,
    )
