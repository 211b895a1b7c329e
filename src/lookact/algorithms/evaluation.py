"""Evaluation and collection of chat episodes: a split of specs in batches of environments, with a progress bar."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from contextlib import nullcontext
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

from lookact.algorithms.rollouts import LocalRollouts, Rollouts
from lookact.data.episode_store import EpisodeStore
from lookact.models.vlm.policy import ChatVLM
from lookact.protocols import Actor, Env, Task
from lookact.rollout.collect import EnvPool
from lookact.rollout.samplers.hf import HFSampler
from lookact.rollout.samplers.settings import Concurrency, Sampling
from lookact.training.distributed import is_main, rank, unsharded, world_size
from lookact.training.evaluation import EPISODES, EVALUATION_KEPT, keep_episodes, keep_evaluation, step_name
from lookact.training.progress import progress, timed
from lookact.types import Episode, EpisodeSpec

INLINE = Concurrency()
"""Environments step in this thread."""
Draw = Callable[[Episode], Episode]
"""Adds the room from above to an episode that is kept."""


def run_specs(
    specs: Sequence[EpisodeSpec],
    make_env: Callable[[], Env],
    actor: Actor,
    *,
    num_envs: int,
    label: str,
    finished: Callable[[Episode], None] | None = None,
    keep: bool = True,
    concurrency: Concurrency = INLINE,
) -> list[Episode]:
    """`collect` with a progress bar, in at most `num_envs` environments; `finished` hears of each episode."""
    concurrency = replace(concurrency, max_concurrent_episodes=num_envs)
    with EnvPool(make_env, concurrency) as envs, progress(len(specs), label) as bar:

        def ended(episode: Episode) -> None:
            if finished is not None:
                finished(episode)
            bar.advance()

        return envs.collect(specs, actor, finished=ended, keep=keep)


@dataclass(frozen=True)
class Evaluator:
    """A policy on a task's held-out starts; a few episodes of each evaluation are kept in the run's folder."""

    task: Task
    sampling: Sampling
    system: str
    """The system prompt."""
    seed: int
    num_envs: int
    folder: Path
    concurrency: Concurrency = INLINE
    rollouts: Rollouts | None = None
    """Whose engine acts, if it has one; else the policy itself does."""

    def report(
        self, policy: ChatVLM, name: str, *, split: str, episodes: int, greedy: bool, version: int = 0
    ) -> dict[str, Any]:
        """The task's report on a split, whose episodes the processes share; the first are kept under `name`.

        `version` names the policy's weights to an engine.
        """
        specs = self.task.specs(self.seed, split, groups=episodes)
        sampling = replace(self.sampling, greedy=greedy)
        local = self.rollouts if isinstance(self.rollouts, LocalRollouts) else None
        opened = nullcontext() if local is None else local.engine_actor(sampling, version)
        how: dict[str, Any] = {"num_envs": self.num_envs, "concurrency": self.concurrency}
        with opened as engine, unsharded(policy):
            actor: Actor = engine or HFSampler(policy, sampling, system=self.system)
            own = specs[rank() :: world_size()]
            if local is not None and local.central:
                own = specs if is_main() else []
            ended = run_specs(own, self.task.make_env, actor, label="evaluating", **how)
        keep_evaluation(self.folder, name, map(self.task.add_floor_map(specs), ended))
        return self.task.report(ended)

    def validate(self, policy: ChatVLM, step: int, *, episodes: int, greedy: bool) -> dict[str, Any]:
        """The report after a training step, on starts that training never uses."""
        return self.report(policy, step_name(step), split="validate", episodes=episodes, greedy=greedy, version=step)

    def final_reports(self, policy: ChatVLM, when: str, *, episodes: int, version: int = 0) -> dict[str, Any]:
        """Greedy and sampled, on starts that nothing else ever uses; none for no episodes."""
        kinds = {"greedy": True, "sampled": False} if episodes else {}
        return {
            name: self.report(policy, f"{when}-{name}", split="test", episodes=episodes, greedy=greedy, version=version)
            for name, greedy in kinds.items()
        }

    def finish(self, policy: ChatVLM, start: Mapping[str, Any], *, episodes: int, version: int = 0) -> dict[str, Any]:
        """Before and after RL, side by side, and the seconds spent around it; `start` is the supervised start's."""
        seconds = dict(start["seconds"])
        with timed(seconds, "evaluation after rl"):
            after = self.final_reports(policy, "after", episodes=episodes, version=version)
        return self.task.compare(start["reports"], after) | {"seconds": seconds}


def evaluate_task(task: Task, actor: Actor, *, seed: int, episodes: int, num_envs: int, folder: Path) -> dict[str, Any]:
    """An actor's report on the test split; a few of its episodes are kept in `folder`."""
    specs = task.specs(seed, "test", groups=episodes)
    ended = run_specs(specs, task.make_env, actor, num_envs=num_envs, label="evaluating")
    keep_episodes(folder / EPISODES, map(task.add_floor_map(specs), ended), most=EVALUATION_KEPT)
    return task.report(ended)


def fill_store(
    folder: Path, specs: Sequence[EpisodeSpec], make_env: Callable[[], Env], actor: Actor, *, num_envs: int, draw: Draw
) -> dict[str, Any]:
    """Fill an EpisodeStore with the episodes of `specs`, each written as it ends; what is there already counts."""
    store = EpisodeStore(folder)
    there = store.ids()
    missing = [spec for spec in specs if spec.id not in there]

    def add(episode: Episode) -> None:
        store.add(draw(episode))

    run_specs(missing, make_env, actor, num_envs=num_envs, label="collecting", finished=add, keep=False)
    return {**asdict(store.summary()), "collected": len(missing), "kept": len(there)}
