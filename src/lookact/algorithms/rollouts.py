"""Where a chat recipe's episodes are run: by the learner itself, or by workers on Ray, at once or a step ahead."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from concurrent.futures import Future
from typing import TYPE_CHECKING, Any, Protocol

from torch import Tensor

from lookact.algorithms.vlm_settings import RaySettings
from lookact.errors import TrainingStopped
from lookact.models.vlm.policy import ChatVLM
from lookact.protocols import Actor, Env
from lookact.rollout.collect import collect
from lookact.training.distributed import deal, is_main, rank, world_size
from lookact.training.sharding import whole
from lookact.training.weights import full_tensors
from lookact.types import Episode, EpisodeSpec

if TYPE_CHECKING:
    from lookact.rollout.ray.pool import RayPool
    from lookact.rollout.ray.worker import WorkerContext

PlansOf = Callable[[int], Sequence[EpisodeSpec]]
"""The plans of a step."""


class Rollouts(Protocol):
    """Runs the plans of a step; a context that ends whoever acts."""

    def act(self, step: int, *, ahead: bool) -> list[Episode]:
        """This process's share of the step's episodes; `ahead` lets acting for the next step begin."""
        ...

    def __enter__(self) -> Rollouts: ...
    def __exit__(self, *_: object) -> None: ...


class LocalRollouts:
    """The learner's own model acts, in every process on its share of the groups."""

    def __init__(self, chat: ChatVLM, actor: Actor, make_env: Callable[[], Env], plans_of: PlansOf) -> None:
        self.chat, self.actor, self.make_env, self.plans_of = chat, actor, make_env, plans_of
        self.envs: list[Env] = []

    def act(self, step: int, *, ahead: bool) -> list[Episode]:
        plans = shard_by_group(self.plans_of(step), rank())
        self.envs += [self.make_env() for _ in range(len(plans) - len(self.envs))]
        self.actor.version = step - 1
        with whole(self.chat):
            return collect(plans, self.envs, self.actor)

    def __enter__(self) -> LocalRollouts:
        return self

    def __exit__(self, *_: object) -> None:
        for env in self.envs:
            env.close()


class RayRollouts:
    """Workers act. The main process sends them the weights, and deals what comes back to all learners."""

    def __init__(
        self, chat: ChatVLM, pool: RayPool | None, plans_of: PlansOf, *, staleness: int, leave: bool = False
    ) -> None:
        """`pool` is None in all but the main process; `leave` parts from the cluster in the end."""
        self.chat, self.pool, self.plans_of, self.staleness, self.leave = chat, pool, plans_of, staleness, leave
        self._coming: Future[list[Episode]] | None = None

    def act(self, step: int, *, ahead: bool) -> list[Episode]:
        begun, overlapping = self._coming, bool(self.staleness) and ahead
        if begun is None or overlapping:
            state = trained_state(self.chat)
        if self.pool is None:
            # anything but None: the main process alone holds what is coming
            self._coming = Future() if overlapping else None
            return deal(None)
        if begun is None:
            self.pool.push(state, step - 1)
            begun = self.pool.start(self.plans_of(step))
        episodes = begun.result()
        if overlapping and self.pool.version < step - 1:
            self.pool.push(state, step - 1)
        self._coming = self.pool.start(self.plans_of(step + 1)) if overlapping else None
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
    plans_of: PlansOf,
) -> Rollouts:
    """Who acts, as the settings say; `make_context` is called in each worker's process and must pickle."""
    if not settings.workers:
        return LocalRollouts(chat, actor, make_env, plans_of)
    if not is_main():
        return RayRollouts(chat, None, plans_of, staleness=settings.staleness)
    from lookact.rollout.ray.pool import RayPool, join_cluster

    joined = join_cluster(settings.address)
    pool = RayPool(
        make_context,
        workers=settings.workers,
        chunk_size=settings.chunk,
        cpus=settings.cpus,
        gpus=settings.gpus,
        timeout_s=settings.patience,
    )
    return RayRollouts(chat, pool, plans_of, staleness=settings.staleness, leave=joined)


def shard_by_group(items: Sequence[Any], number: int) -> list[Any]:
    """The plans or episodes of the process with this number: whole groups, because a group shares a baseline."""
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
