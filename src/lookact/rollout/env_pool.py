"""Environments of rollouts: made as they are needed, where the settings say that they step."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial

from lookact.envs.wrappers.process_env import ProcessEnv
from lookact.protocols import Actor, Env
from lookact.rollout.collect import collect
from lookact.rollout.samplers.settings import Concurrency
from lookact.types import Episode, EpisodeSpec


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
