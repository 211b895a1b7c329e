"""Evaluation and collection of chat episodes: a split of specs in batches of environments, with a progress bar."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

from lookact.data.episode_store import EpisodeStore
from lookact.data.quality import summarise
from lookact.protocols import Actor, Env
from lookact.rollout.collect import collect
from lookact.training.distributed import rank, world_size
from lookact.training.progress import progress
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


def final_reports(report_on: Callable[[str, bool], dict[str, Any]], when: str) -> dict[str, Any]:
    """The greedy and the sampled policy's report; `report_on` takes the evaluation's name and `greedy`."""
    return {name: report_on(f"{when}-{name}", greedy) for name, greedy in (("greedy", True), ("sampled", False))}


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
