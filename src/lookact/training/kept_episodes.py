"""Episodes that are kept to be looked at: a few of each evaluation, as an EpisodeStore that is there as a whole or not.

A run's lie in `RUN/episodes/NAME`: `before-greedy`, `step-000020`, `after-sampled` and so on. Of the evaluations while
training only the newest are kept, and a run that goes on from a checkpoint drops those that came after it: it ends with
the same ones as an unbroken run.
"""

from __future__ import annotations

import re
import shutil
from collections.abc import Iterable, Iterator
from dataclasses import replace
from itertools import islice
from pathlib import Path

from lookact.data.episode_store import EpisodeStore
from lookact.data.manifest import MANIFEST
from lookact.errors import DataError
from lookact.training.atomic_io import TEMPORARY, discard, is_disk_full, place, recover, sync_tree
from lookact.training.distributed import barrier, gather, is_main, world_size
from lookact.types import Episode, Observation

EPISODES = "episodes"
KEPT = 8
"""Episodes of an evaluation while training, always the first ones: the same starts each time."""
EVALUATION_KEPT = 20
"""Those of `lookact eval`."""
NEWEST = 3
"""Evaluations while training."""
_STEP = re.compile(r"step-(\d+)")


def step_name(step: int, phase: str = "") -> str:
    """What the evaluation after a step is called."""
    return f"step-{step:06d}" + (f"-{phase}" if phase else "")


def keep_evaluation(run_folder: Path, name: str, episodes: Iterable[Episode]) -> None:
    """Keep a run's evaluation under `name`, and drop those of older steps; every process gives its share of it."""
    folder = run_folder / EPISODES
    keep_episodes(folder / name, episodes)
    if is_main():
        for old in sorted(_steps(folder), key=_step_of)[:-NEWEST]:
            discard(old)
    barrier()


def keep_episodes(folder: Path, episodes: Iterable[Episode], *, most: int = KEPT) -> None:
    """The first `most` episodes of all processes, by their groups, as the whole of what `folder` holds.

    No more of `episodes` than needed are taken. Depth is left out: it would be most of the bytes and is not shown.
    """
    share = [without_depth(episode) for episode in islice(episodes, -(-most // world_size()))]
    first = sorted((episode for part in gather(share) for episode in part), key=lambda episode: episode.group)[:most]
    if is_main():
        folder.parent.mkdir(parents=True, exist_ok=True)
        recover(folder.parent)
        _write(folder.with_name(TEMPORARY + folder.name), first)
        place(folder.with_name(TEMPORARY + folder.name), folder)
    barrier()


def without_depth(episode: Episode) -> Episode:
    """The same, lighter."""
    turns = tuple(replace(turn, observation=replace(turn.observation, depth=None)) for turn in episode.turns)
    last: Observation | None = episode.last and replace(episode.last, depth=None)
    return replace(episode, turns=turns, last=last)


def rewind_episodes(run_folder: Path, done: int, source: Path | None = None) -> None:
    """Make a run's kept evaluations those of the time when step `done` was saved; `source` is another run's folder."""
    folder = run_folder / EPISODES
    if source is not None:
        for manifest in sorted((source / EPISODES).glob(f"*/{MANIFEST}")):
            shutil.copytree(manifest.parent, folder / manifest.parent.name, dirs_exist_ok=True)
    if not folder.is_dir():
        return
    recover(folder)
    for newer in [path for path in _steps(folder) if _step_of(path) > done] + sorted(folder.glob("after*")):
        discard(newer)


def _write(folder: Path, episodes: Iterable[Episode]) -> None:
    try:
        store = EpisodeStore(folder)
        for episode in episodes:
            store.add(episode)
        sync_tree(folder)
    except (OSError, RuntimeError) as error:
        full = is_disk_full(error, folder.parent)
        shutil.rmtree(folder, ignore_errors=True)
        if full:
            raise DataError(f"no space left to keep episodes in {folder.parent}: free some and go on") from error
        raise


def _steps(folder: Path) -> Iterator[Path]:
    return (path for path in folder.iterdir() if _STEP.match(path.name))


def _step_of(path: Path) -> int:
    found = _STEP.match(path.name)
    assert found is not None
    return int(found[1])
