"""Rollouts of a vision-language policy: by the learner's process or by workers on Ray, and the sampler that decides."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from concurrent.futures import Future
from contextlib import ExitStack
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, Protocol

from torch import Tensor

from lookact.algorithms.vlm import open_chat
from lookact.algorithms.vlm_settings import Model, RaySettings
from lookact.errors import ConfigError, TrainingStopped
from lookact.models.vlm.loading import load_processor, merged_state, write_snapshot
from lookact.models.vlm.policy import ChatVLM
from lookact.protocols import Actor, Env, Task
from lookact.rollout.collect import collect
from lookact.rollout.samplers.hf import HFSampler
from lookact.rollout.samplers.settings import Sampling, VllmSpec
from lookact.rollout.samplers.vllm import VllmEngine, VllmSampler, engine_arguments
from lookact.rollout.samplers.vllm_server import VllmServer
from lookact.rollout.weight_sync import WeightSync
from lookact.text.tokenizers import assert_same_tokenizer
from lookact.training.distributed import deal, is_main, rank, unsharded, world_size
from lookact.training.weights import full_tensors
from lookact.types import Episode, EpisodeSpec

if TYPE_CHECKING:
    from lookact.rollout.ray.pool import RayPool
    from lookact.rollout.ray.worker import WorkerContext

SpecsOf = Callable[[int], Sequence[EpisodeSpec]]
"""The episodes to run in a step."""


class Rollouts(Protocol):
    """Runs the episodes of a step; a context that closes environments and workers."""

    def collect(self, step: int, *, ahead: bool) -> list[Episode]:
        """This process's share of the step's episodes; `ahead` lets the next step's rollouts begin."""
        ...

    def __enter__(self) -> Rollouts: ...
    def __exit__(self, *_: object) -> None: ...


class LocalRollouts:
    """Every process samples its share of the groups itself."""

    def __init__(self, chat: ChatVLM, actor: Actor, make_env: Callable[[], Env], specs_of: SpecsOf) -> None:
        self.chat, self.actor, self.make_env, self.specs_of = chat, actor, make_env, specs_of
        self.envs: list[Env] = []

    def collect(self, step: int, *, ahead: bool) -> list[Episode]:
        specs = shard_by_group(self.specs_of(step), rank())
        self.envs += [self.make_env() for _ in range(len(specs) - len(self.envs))]
        self.actor.version = step - 1
        with unsharded(self.chat):
            return collect(specs, self.envs, self.actor)

    def __enter__(self) -> LocalRollouts:
        return self

    def __exit__(self, *_: object) -> None:
        for env in self.envs:
            env.close()


class RayRollouts:
    """Workers sample. The main process sends them the weights, and deals what comes back to all learners."""

    def __init__(
        self, chat: ChatVLM, pool: RayPool | None, specs_of: SpecsOf, *, staleness: int, leave: bool = False
    ) -> None:
        """`pool` is None in all but the main process; `leave` parts from the cluster in the end."""
        self.chat, self.pool, self.specs_of, self.staleness, self.leave = chat, pool, specs_of, staleness, leave
        self._coming: Future[list[Episode]] | None = None

    def collect(self, step: int, *, ahead: bool) -> list[Episode]:
        begun, overlapping = self._coming, bool(self.staleness) and ahead
        if begun is None or overlapping:
            state = trained_state(self.chat)
        if self.pool is None:
            # anything but None: the main process alone holds what is coming
            self._coming = Future() if overlapping else None
            return deal(None)
        if begun is None:
            self.pool.push(state, step - 1)
            begun = self.pool.start(self.specs_of(step))
        episodes = begun.result()
        if overlapping and self.pool.version < step - 1:
            self.pool.push(state, step - 1)
        self._coming = self.pool.start(self.specs_of(step + 1)) if overlapping else None
        return deal([shard_by_group(episodes, number) for number in range(world_size())])

    def __enter__(self) -> RayRollouts:
        return self

    def __exit__(self, *_: object) -> None:
        if self.pool is not None:
            self.pool.close()
        if self.leave:
            from lookact.rollout.ray.pool import leave_cluster

            leave_cluster()


def open_rollouts(
    chat: ChatVLM,
    settings: RaySettings,
    *,
    actor: Actor,
    make_env: Callable[[], Env],
    make_context: Callable[[], WorkerContext],
    specs_of: SpecsOf,
) -> Rollouts:
    """Rollouts as the settings say; `make_context` is called in each worker's process and must pickle."""
    if not settings.workers:
        return LocalRollouts(chat, actor, make_env, specs_of)
    if not is_main():
        return RayRollouts(chat, None, specs_of, staleness=settings.staleness)
    from lookact.rollout.ray.pool import RayPool, join_cluster

    joined = join_cluster(settings.address)
    pool = RayPool(
        make_context,
        workers=settings.workers,
        chunk_size=settings.episodes_per_task,
        cpus=settings.cpus,
        gpus=settings.gpus,
        timeout_s=settings.timeout_s,
    )
    return RayRollouts(chat, pool, specs_of, staleness=settings.staleness, leave=joined)


def shard_by_group(items: Sequence[Any], number: int) -> list[Any]:
    """The specs or episodes of the process with this number: whole groups, because a group shares a baseline."""
    return [item for item in items if item.group % world_size() == number]


def trained_state(chat: ChatVLM) -> dict[str, Tensor]:
    """Every weight that learns, whole, by its name in the model; all processes take part where they are in parts."""
    learned = {name: parameter.detach() for name, parameter in chat.model.named_parameters() if parameter.requires_grad}
    state: dict[str, Tensor] = full_tensors(learned)
    return state


def staleness_of(episodes: Sequence[Episode], step: int) -> int:
    """How many updates the oldest of the episodes lags behind the weights that step `step` begins with."""
    return max((step - 1 - episode.policy_version for episode in episodes), default=0)


def stop_on_errors(episodes: Sequence[Episode], rate: float, most: float) -> None:
    """Ends a run of whose episodes a larger share failed than `most`, in any process."""
    if rate > most:
        reasons = [episode.error for episode in episodes if episode.error]
        last = reasons[-1] if reasons else "an error in another process"
        raise TrainingStopped(f"{rate:.0%} of the episodes failed, the last with: {last}")


def worker_context(
    task: Task, model: Model, folder: Path, sampling: Sampling, *, system: str, seed: int, num_envs: int
) -> WorkerContext:
    """A worker's sampler and environments, built in its own process from the untrained model in `folder`."""
    from lookact.rollout.ray.worker import WorkerContext

    policy = open_chat(model, folder, corpus=task.corpus, image_size=task.image_size, seed=seed)
    actor = HFSampler(policy, sampling, system=system)
    return WorkerContext(actor=actor, envs=[task.make_env() for _ in range(num_envs)], model=policy.model)


def worker_model(model: Model, *, gpus: float) -> Model:
    """The model's settings as a worker needs them: paths that hold in every folder, on the worker's own device."""
    source = Path(model.source)
    return replace(
        model,
        source=str(source.resolve()) if source.exists() else model.source,
        device="cuda" if gpus else "cpu",
    )


Sync = Callable[[int], dict[str, float]]
"""Gives the sampler the learner's weights of now, under a version; returns what it measured."""


def open_sampler(
    policy: ChatVLM,
    kind: Literal["hf", "vllm", "vllm-server"],
    sampling: Sampling,
    *,
    system: str,
    vllm: VllmSpec,
    folder: Path,
    max_logprob_gap: float,
    closing: ExitStack,
) -> tuple[Actor, Sync]:
    """The learner's own model, or a vLLM engine checked for the same tokenizer, template and pixels, and its sync."""
    if kind == "hf":
        own = HFSampler(policy, sampling, system=system)

        def stamp(version: int) -> dict[str, float]:
            own.version = version
            return {}

        return own, stamp
    if world_size() > 1:
        raise ConfigError(f"engine {kind} serves one process, this run has {world_size()}: set --engine hf")
    start = write_snapshot(policy, merged_state(policy), folder / "start")
    assert_same_tokenizer(load_processor(start), policy)
    arguments = engine_arguments(policy, sampling, vllm)
    engine = VllmEngine(start, arguments) if kind == "vllm" else VllmServer(start, arguments, vllm)
    closing.callback(engine.close)
    actor = VllmSampler(policy, engine, sampling, system=system)
    sync = WeightSync(actor, limit=max_logprob_gap)

    def push(version: int) -> dict[str, float]:
        sync.push(merged_state(policy), version)
        assert sync.report is not None
        report = sync.report
        return {"policy/sync_gap": report.gap, "policy/sync_changed": report.changed, "time/sync": report.seconds}

    return actor, push
