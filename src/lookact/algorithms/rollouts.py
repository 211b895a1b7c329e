"""Rollouts of a vision-language policy: by the learner's process or by workers on Ray, and the sampler that decides."""

from __future__ import annotations

import shutil
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import Future
from contextlib import ExitStack, contextmanager
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol

import numpy as np
from torch import Tensor

from lookact.algorithms.vlm import open_chat
from lookact.algorithms.vlm_settings import Model, RaySettings
from lookact.data.quality import episode_numbers, summarise
from lookact.errors import ConfigError, TrainingStopped
from lookact.models.vlm.loading import base_state, engine_state, load_processor, write_snapshot
from lookact.models.vlm.policy import ChatVLM
from lookact.protocols import Actor, Task, TokenEngine
from lookact.rewards.functions import PARTS
from lookact.rollout.collect import EnvPool
from lookact.rollout.samplers.hf import HFSampler
from lookact.rollout.samplers.settings import Concurrency, Sampler, Sampling, VllmSpec
from lookact.rollout.samplers.vllm import VllmEngine, VllmSampler, engine_arguments
from lookact.rollout.samplers.vllm_server import VllmServer
from lookact.rollout.weight_sync import WeightSync
from lookact.text.tokenizers import assert_same_tokenizer
from lookact.training.distributed import all_reduce_sum, deal, gather, is_main, rank, sum_by_name, unsharded, world_size
from lookact.training.weights import full_tensors
from lookact.types import Episode, EpisodeSpec

if TYPE_CHECKING:
    from lookact.rollout.ray.pool import RayPool
    from lookact.rollout.ray.worker import WorkerContext

Sync = Callable[[int], dict[str, float]]
"""Gives the sampler the learner's weights of now, under a version; returns what it measured."""


class Rollouts(Protocol):
    """Runs episodes with the learner's weights of now; a context that closes environments, engines and workers."""

    sync_metrics: dict[str, float]
    """Of the last weight sync."""

    def collect(self, specs: Sequence[EpisodeSpec], version: int) -> list[Episode]:
        """This process's share of the episodes, or of those that were prefetched; `version` names the weights."""
        ...

    def prefetch(self, specs: Sequence[EpisodeSpec], version: int) -> None:
        """Begin what the next `collect` is to give, where rollouts may lag behind; else nothing."""
        ...

    def __enter__(self) -> Rollouts: ...
    def __exit__(self, *_: object) -> None: ...


class LocalRollouts:
    """The learner's processes sample: each its share of the groups, or the main one for all, by an engine."""

    def __init__(
        self, chat: ChatVLM, actor: Actor, envs: EnvPool, sync: Sync, *, central: bool, closing: ExitStack
    ) -> None:
        self.chat, self.actor, self.envs, self.sync, self.central = chat, actor, envs, sync, central
        self.closing = closing
        self.version: int | None = None
        self.sync_metrics: dict[str, float] = {}

    def collect(self, specs: Sequence[EpisodeSpec], version: int) -> list[Episode]:
        with self._awake(version):
            if not self.central:
                with unsharded(self.chat):
                    return self.envs.collect(shard_by_group(specs, rank()), self.actor)
            ended = self.envs.collect(specs, self.actor) if is_main() else []
        return deal(deal_groups(ended) if is_main() else None)

    def prefetch(self, specs: Sequence[EpisodeSpec], version: int) -> None:
        pass

    @contextmanager
    def engine_actor(self, sampling: Sampling, version: int) -> Iterator[VllmSampler | None]:
        """The engine under other sampling, with the weights of now; None where there is none in this process."""
        with self._awake(version):
            if isinstance(actor := self.actor, VllmSampler):
                yield VllmSampler(self.chat, actor.engine, sampling, system=actor.system, version=version)
            else:
                yield None

    @contextmanager
    def _awake(self, version: int) -> Iterator[None]:
        """An engine that has these weights, and gives its memory back in the end."""
        engine = self.actor.engine if isinstance(self.actor, VllmSampler) else None
        if engine is not None:
            engine.wake()
        if self.version != version:
            self.sync_metrics, self.version = self.sync(version), version
        yield
        if engine is not None:
            engine.sleep()

    def __enter__(self) -> LocalRollouts:
        return self

    def __exit__(self, *_: object) -> None:
        self.envs.close()
        self.closing.close()


class RayRollouts:
    """Workers sample. The main process sends them the weights, and deals what comes back to all learners."""

    def __init__(self, chat: ChatVLM, pool: RayPool | None, *, staleness: int, leave: bool = False) -> None:
        """`pool` is None in all but the main process; `leave` parts from the cluster in the end."""
        self.chat, self.pool, self.staleness, self.leave = chat, pool, staleness, leave
        self.version: int | None = None
        self.sync_metrics: dict[str, float] = {}
        self._coming: Future[list[Episode]] | None = None

    def collect(self, specs: Sequence[EpisodeSpec], version: int) -> list[Episode]:
        begun, self._coming = self._coming or self._begin(specs, version), None
        return deal(None if self.pool is None else deal_groups(begun.result()))

    def prefetch(self, specs: Sequence[EpisodeSpec], version: int) -> None:
        if self.staleness:
            self._coming = self._begin(specs, version)

    def _begin(self, specs: Sequence[EpisodeSpec], version: int) -> Future[list[Episode]]:
        began = time.perf_counter()
        if self.version != version:
            state = trained_state(self.chat)
            if self.pool is not None:
                self.pool.push(state, version)
            self.version, self.sync_metrics = version, {"time/sync": time.perf_counter() - began}
        # the main process alone holds what is coming
        return Future() if self.pool is None else self.pool.start(specs)

    def __enter__(self) -> RayRollouts:
        return self

    def __exit__(self, *_: object) -> None:
        if self.pool is not None:
            self.pool.close()
        if self.leave:
            from lookact.rollout.ray.pool import leave_cluster

            leave_cluster()


def open_rollouts(
    policy: ChatVLM,
    task: Task,
    *,
    sampler: Sampler,
    sampling: Sampling,
    concurrency: Concurrency,
    system: str,
    model: Model,
    vllm: VllmSpec,
    ray: RaySettings,
    seed: int,
    folder: Path,
    max_logprob_gap: float,
) -> Rollouts:
    """Rollouts by the sampler that is named, in the learner's processes or by workers on Ray; `folder` is the run's."""
    if not ray.workers:
        closing = ExitStack()
        actor, sync = open_sampler(
            policy,
            sampler,
            sampling,
            system=system,
            vllm=vllm,
            folder=folder / "engine",
            max_logprob_gap=max_logprob_gap,
            closing=closing,
        )
        central = sampler != "hf" and world_size() > 1
        envs = EnvPool(task.make_env, concurrency)
        return LocalRollouts(policy, actor, envs, sync, central=central, closing=closing)
    if not is_main():
        return RayRollouts(policy, None, staleness=ray.staleness)
    from lookact.rollout.ray.pool import RayPool, join_cluster

    joined = join_cluster(ray.address)
    pool = RayPool(
        partial(
            worker_context,
            task,
            worker_model(model, gpus=ray.gpus),
            (folder / "model").resolve(),
            sampling,
            concurrency,
            system=system,
            seed=seed,
            num_envs=ray.episodes_per_task,
        ),
        workers=ray.workers,
        chunk_size=ray.episodes_per_task,
        cpus=ray.cpus,
        gpus=ray.gpus,
        timeout_s=ray.timeout_s,
    )
    return RayRollouts(policy, pool, staleness=ray.staleness, leave=joined)


def deal_groups(episodes: Sequence[Episode]) -> list[list[Episode]]:
    """The episodes of each process, by rank."""
    return [shard_by_group(episodes, number) for number in range(world_size())]


def shard_by_group(items: Sequence[Any], number: int) -> list[Any]:
    """The specs or episodes of the process with this number: whole groups, because a group shares a baseline."""
    return [item for item in items if item.group % world_size() == number]


def trained_state(chat: ChatVLM) -> dict[str, Tensor]:
    """Every weight that learns, whole, by its name in the model; all processes take part where they are in parts."""
    learned = {name: parameter.detach() for name, parameter in chat.model.named_parameters() if parameter.requires_grad}
    state: dict[str, Tensor] = full_tensors(learned)
    return state


def rollout_metrics(episodes: Sequence[Episode], outcome: Mapping[str, str], step: int) -> dict[str, float]:
    """Means over the episodes of all processes, and how many updates the oldest lags behind step `step`'s weights.

    `outcome` names a task's own numbers, as `episode_numbers` takes it. Of this process alone are the action-mask
    methods, as shares of turns, and the lag.
    """
    parts = gather(episode_numbers(episodes, outcome))
    means = {f"rollout/{name}": float(np.concatenate([part[name] for part in parts]).mean()) for name in parts[0]}
    summary = summarise(episodes)
    turns = max(1, sum(summary.methods.values()))
    shares = {f"rollout/mask_{method}": count / turns for method, count in summary.methods.items()}
    stale = max((step - 1 - episode.policy_version for episode in episodes), default=0)
    shares |= {"rollout/dropout_rate": summary.dropout_rate, "rollout/staleness": float(stale)}
    return means | shares | reward_metrics(episodes)


def reward_metrics(episodes: Sequence[Episode]) -> dict[str, float]:
    """What each part of the reward paid an episode, over all processes; one that was not relabelled has one part."""
    paid: dict[str, float] = {}
    for turn in (turn for episode in episodes for turn in episode.turns):
        for name, pay in turn.info.get(PARTS, {"env": turn.reward}).items():
            paid[name] = paid.get(name, 0.0) + float(pay)
    count = all_reduce_sum(float(len(episodes)))
    return {f"reward/{name}": total / count for name, total in sum_by_name(paid).items()}


def stop_on_errors(episodes: Sequence[Episode], rate: float, most: float) -> None:
    """Ends a run of whose episodes a larger share failed than `most`, in any process."""
    if rate > most:
        reasons = [episode.error for episode in episodes if episode.error]
        last = reasons[-1] if reasons else "an error in another process"
        raise TrainingStopped(f"{rate:.0%} of the episodes failed, the last with: {last}")


def worker_context(
    task: Task,
    model: Model,
    folder: Path,
    sampling: Sampling,
    concurrency: Concurrency,
    *,
    system: str,
    seed: int,
    num_envs: int,
) -> WorkerContext:
    """A worker's sampler and environments, built in its own process from the untrained model in `folder`."""
    from lookact.rollout.ray.worker import WorkerContext

    policy = open_chat(model, folder, corpus=task.corpus, image_size=task.image_size, seed=seed)
    actor = HFSampler(policy, sampling, system=system)
    pool = EnvPool(task.make_env, concurrency)
    envs = [pool.make_env() for _ in range(num_envs)]
    return WorkerContext(actor=actor, envs=envs, model=policy.model, threads=pool.threads)


def worker_model(model: Model, *, gpus: float) -> Model:
    """The model's settings as a worker needs them: paths that hold in every folder, on the worker's own device."""
    source = Path(model.source)
    return replace(
        model,
        source=str(source.resolve()) if source.exists() else model.source,
        device="cuda" if gpus else "cpu",
    )


def open_sampler(
    policy: ChatVLM,
    kind: Sampler,
    sampling: Sampling,
    *,
    system: str,
    vllm: VllmSpec,
    folder: Path,
    max_logprob_gap: float,
    closing: ExitStack,
) -> tuple[Actor, Sync]:
    """The learner's own model, or a vLLM engine, and what gives it the learner's weights.

    Of several processes the main one alone has an engine; the others' actor is never asked.
    """
    own = HFSampler(policy, sampling, system=system)
    if kind == "hf":

        def stamp(version: int) -> dict[str, float]:
            own.version = version
            return {}

        return own, stamp
    if kind == "vllm" and world_size() > 1:
        raise ConfigError(f"sampler vllm serves one process, this run has {world_size()}: set --sampler vllm-server")
    sync: WeightSync | None = None
    with unsharded(policy):
        if is_main():
            engine = start_engine(policy, kind, engine_arguments(policy, sampling, vllm), vllm, folder)
            closing.callback(engine.close)
            sync = WeightSync(VllmSampler(policy, engine, sampling, system=system), limit=max_logprob_gap)

    def push(version: int) -> dict[str, float]:
        with unsharded(policy):
            return {} if sync is None else sync.push(engine_state(policy), version)

    return (own if sync is None else sync.sampler), push


@contextmanager
def open_actor(
    policy: ChatVLM,
    *,
    sampler: Sampler,
    sampling: Sampling,
    system: str,
    vllm: VllmSpec,
    folder: Path,
    max_logprob_gap: float,
) -> Iterator[Actor]:
    """The sampler that is named, with the policy's weights; what an engine needs in `folder` goes with it."""
    with ExitStack() as closing:
        closing.callback(shutil.rmtree, folder, ignore_errors=True)
        how: dict[str, Any] = {"system": system, "vllm": vllm, "folder": folder, "max_logprob_gap": max_logprob_gap}
        actor, sync = open_sampler(policy, sampler, sampling, **how, closing=closing)
        sync(actor.version)
        yield actor


def start_engine(
    policy: ChatVLM, kind: Sampler, arguments: Mapping[str, Any], vllm: VllmSpec, folder: Path
) -> TokenEngine:
    """vLLM on the policy as it is now, written to `folder`, once tokenizer, template and pixels are seen to agree."""
    start = write_snapshot(policy, base_state(policy), folder / "start")
    assert_same_tokenizer(load_processor(start), policy)
    return VllmEngine(start, arguments) if kind == "vllm" else VllmServer(start, arguments, vllm)
