"""Evaluation and collection of chat episodes: a split of specs in batches of environments, with a progress bar."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

from lookact.data.episode_store import EpisodeStore
from lookact.data.quality import summarise
from lookact.models.vlm.policy import ChatVLM
from lookact.protocols import Actor, Env, Task
from lookact.rewards.shaping import part_means
from lookact.rollout.collect import collect
from lookact.rollout.samplers.hf import HFSampler
from lookact.rollout.samplers.settings import Sampling
from lookact.training.distributed import all_reduce_sum, rank, sum_by_name, unsharded, world_size
from lookact.training.evaluation import EPISODES, EVALUATION_KEPT, keep_episodes, keep_evaluation, step_name
from lookact.training.progress import progress, timed
from lookact.types import Episode, EpisodeSpec

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
) -> list[Episode]:
    """`collect` with a progress bar, in at most `num_envs` environments; `finished` hears of each episode."""
    envs = [make_env() for _ in range(min(num_envs, len(specs)))]
    with progress(len(specs), label) as bar:

        def ended(episode: Episode) -> None:
            if finished is not None:
                finished(episode)
            bar.advance()

        return collect(specs, envs, actor, finished=ended)


def run_split(
    specs: Sequence[EpisodeSpec], make_env: Callable[[], Env], actor: Actor, *, num_envs: int
) -> list[Episode]:
    """This process's share of a split's episodes: every `world_size`-th spec."""
    return run_specs(specs[rank() :: world_size()], make_env, actor, num_envs=num_envs, label="evaluating")


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

    def report(self, policy: ChatVLM, name: str, *, split: str, episodes: int, greedy: bool) -> dict[str, Any]:
        """The task's report on a split, whose episodes the processes share; the first are kept under `name`."""
        specs = self.task.specs(self.seed, split, groups=episodes)
        actor = HFSampler(policy, replace(self.sampling, greedy=greedy), system=self.system)
        with unsharded(policy):
            ended = run_split(specs, self.task.make_env, actor, num_envs=self.num_envs)
        keep_evaluation(self.folder, name, map(self.task.add_floor_map(specs), ended))
        return self.task.report(ended)

    def validate(self, policy: ChatVLM, step: int, *, episodes: int, greedy: bool) -> dict[str, Any]:
        """The report after a training step, on starts that training never uses."""
        return self.report(policy, step_name(step), split="validate", episodes=episodes, greedy=greedy)

    def final_reports(self, policy: ChatVLM, when: str, *, episodes: int) -> dict[str, Any]:
        """Greedy and sampled, on starts that nothing else ever uses; none for no episodes."""
        kinds = {"greedy": True, "sampled": False} if episodes else {}
        return {
            name: self.report(policy, f"{when}-{name}", split="test", episodes=episodes, greedy=greedy)
            for name, greedy in kinds.items()
        }

    def finish(self, policy: ChatVLM, start: Mapping[str, Any], *, episodes: int) -> dict[str, Any]:
        """Before and after RL, side by side, and the seconds spent around it; `start` is the supervised start's."""
        seconds = dict(start["seconds"])
        with timed(seconds, "evaluation after rl"):
            after = self.final_reports(policy, "after", episodes=episodes)
        return self.task.compare(start["reports"], after) | {"seconds": seconds}


def evaluate_task(task: Task, actor: Actor, *, seed: int, episodes: int, num_envs: int, folder: Path) -> dict[str, Any]:
    """An actor's report on the test split; a few of its episodes are kept in `folder`."""
    specs = task.specs(seed, "test", groups=episodes)
    ended = run_split(specs, task.make_env, actor, num_envs=num_envs)
    keep_episodes(folder / EPISODES, map(task.add_floor_map(specs), ended), most=EVALUATION_KEPT)
    return task.report(ended)


def fill_store(
    folder: Path, specs: Sequence[EpisodeSpec], make_env: Callable[[], Env], actor: Actor, *, num_envs: int, draw: Draw
) -> dict[str, Any]:
    """Fill an EpisodeStore with the episodes of `specs`; what is there already is kept and counts."""
    store = EpisodeStore(folder)
    there = store.ids()
    missing = [spec for spec in specs if spec.id not in there]

    def add(episode: Episode) -> None:
        store.add(draw(episode))

    run_specs(missing, make_env, actor, num_envs=num_envs, label="collecting", finished=add)
    return {**asdict(summarise(store.episodes())), "collected": len(missing), "kept": len(there)}


def reward_metrics(episodes: Sequence[Episode]) -> dict[str, float]:
    """What each part of the reward paid an episode, over all processes."""
    parts = {name: float(paid) for name, paid in part_means(episodes).items()}
    counted = sum_by_name({name: paid * len(episodes) for name, paid in parts.items()})
    count = all_reduce_sum(float(len(episodes)))
    return {f"reward/{name}": paid / count for name, paid in counted.items()}
