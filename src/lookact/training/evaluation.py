"""Evaluation: means over episodes with 95% confidence intervals, the episodes kept to be looked at, strips and words.

A run keeps a few episodes of each evaluation in `RUN/episodes/NAME` (`before-greedy`, `step-000020`, `after-sampled`
and so on), as an EpisodeStore that is there as a whole or not. Of the evaluations while training only the newest are
kept, and a run that goes on from a checkpoint drops those that came after it: it ends as an unbroken run would.
"""

from __future__ import annotations

import math
import re
import shutil
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import islice
from pathlib import Path
from statistics import NormalDist
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from lookact.data.episode_store import EpisodeStore
from lookact.data.jsonl import MANIFEST
from lookact.errors import DataError
from lookact.protocols import Tracker
from lookact.seeding import numpy_rng
from lookact.training.atomic_io import TEMPORARY, discard, is_disk_full, place, recover, sync_tree
from lookact.training.distributed import barrier, gather, is_main, world_size
from lookact.types import Episode, Image, Observation, Turn

Array = NDArray[np.float64]
Numbers = dict[str, Array]
"""Name to one number an episode (n,)."""

EPISODES = "episodes"
KEPT = 8
"""Episodes kept of an evaluation while training, always the first ones: the same starts each time."""
EVALUATION_KEPT = 20
"""Those of `lookact eval`."""
NEWEST = 3
"""Evaluations kept while training."""
BLOCK = 4_000_000
"""Bootstrap draws held in memory at once."""
ENLARGED = 4
"""Pixels of a video or strip for each pixel a policy sees."""
_STEP = re.compile(r"step-(\d+)")


@dataclass(frozen=True)
class Report:
    """An evaluation: means over episodes, each with its 95% interval; `counts` have none."""

    values: dict[str, float]
    intervals: dict[str, tuple[float, float]]
    episodes: int
    counts: dict[str, int] = field(default_factory=dict)

    def metrics(self, prefix: str) -> dict[str, float]:
        """For the tracker."""
        counts = {f"{prefix}/{name}": float(count) for name, count in self.counts.items()}
        return {f"{prefix}/{name}": value for name, value in self.values.items()} | counts

    def plain(self) -> dict[str, Any]:
        """For `result.json`: the means, the counts, how many episodes, and the intervals under `ci`."""
        counts = {**self.counts, "episodes": self.episodes}
        return {**self.values, **counts, "ci": {name: list(interval) for name, interval in self.intervals.items()}}


def make_report(numbers: Numbers, *, rates: Sequence[str] = (), counts: Mapping[str, int] | None = None) -> Report:
    """Means over the episodes of this process: Wilson's interval for `rates` of 0 or 1, the bootstrap's for others."""
    episodes = len(next(iter(numbers.values())))
    values = {name: float(column.mean()) for name, column in numbers.items()}
    intervals = {
        name: wilson_interval(int(column.sum()), len(column)) if name in rates else bootstrap_interval(column)
        for name, column in numbers.items()
    }
    return Report(values, intervals, episodes, dict(counts or {}))


def means_with_intervals(numbers: Numbers) -> dict[str, Any]:
    """Means over episodes and, under `ci`, their bootstrap intervals: a part of a larger report."""
    report = make_report(numbers).plain()
    del report["episodes"]
    return report


def gather_numbers(numbers: Numbers) -> Numbers:
    """The numbers of all processes, one after the other."""
    parts = gather(numbers)
    return {name: np.concatenate([part[name] for part in parts]) for name in parts[0]}


def flat_metrics(report: Mapping[str, Any], prefix: str = "eval") -> dict[str, float]:
    """A plain report's numbers under one prefix, groups joined to their names by `_`; intervals are left out."""
    found: dict[str, float] = {}
    for name, value in report.items():
        if name == "ci":
            continue
        if isinstance(value, Mapping):
            inner = flat_metrics(value, "")
            found |= {f"{prefix}/{name}_{key.removeprefix('/')}": number for key, number in inner.items()}
        else:
            found[f"{prefix}/{name}"] = float(value)
    return found


# ---- confidence intervals


def wilson_interval(successes: int, n: int, confidence: float = 0.95) -> tuple[float, float]:
    """Wilson's score interval of a rate (JASA 22, 1927). With no trials nothing is known: (0, 1)."""
    check_confidence(confidence)
    if not 0 <= successes <= n:
        raise DataError(f"{successes} successes in {n} trials: the first must lie between 0 and the second")
    if n == 0:
        return 0.0, 1.0
    z = NormalDist().inv_cdf(0.5 + confidence / 2)
    rate, shrink = successes / n, 1 + z * z / n
    middle = (rate + z * z / (2 * n)) / shrink
    half = z / shrink * math.sqrt(rate * (1 - rate) / n + z * z / (4 * n * n))
    # at the ends the bound is exact; rounding must not move it
    return (0.0 if successes == 0 else middle - half), (1.0 if successes == n else middle + half)


def bootstrap_interval(
    values: ArrayLike, *, confidence: float = 0.95, resamples: int = 2000, seed: int = 0
) -> tuple[float, float]:
    """The bootstrap's percentile interval of the mean of `values` (n,)."""
    check_confidence(confidence)
    return percentiles(resampled_means(np.asarray(values, dtype=np.float64), resamples, seed, "values"), confidence)


def resampled_means(values: Array, resamples: int, seed: int, name: str) -> Array:
    """(resamples,) means of draws with replacement. Equal values are drawn together: scores take few values."""
    if values.ndim != 1 or not len(values) or not np.isfinite(values).all() or resamples < 1:
        raise DataError(f"a bootstrap needs finite values (n,) and resamples, found {values.shape} and {resamples}")
    rng = numpy_rng(seed, "bootstrap", name)
    levels, counts = np.unique(values, return_counts=True)
    means = np.empty(resamples)
    block = max(1, BLOCK // len(levels))
    for start in range(0, resamples, block):
        size = min(block, resamples - start)
        means[start : start + size] = rng.multinomial(len(values), counts / len(values), size) @ levels / len(values)
    return means


def percentiles(means: Array, confidence: float) -> tuple[float, float]:
    """The central `confidence` of resampled means (n,)."""
    low, high = np.quantile(means, [(1 - confidence) / 2, (1 + confidence) / 2])
    return float(low), float(high)


def check_confidence(confidence: float) -> None:
    """Refuse a percentage."""
    if not 0 < confidence < 1:
        raise DataError(f"confidence {confidence} must lie between 0 and 1, as 0.95 does")


# ---- strips, videos and words of episodes


def show_episodes(
    tracker: Tracker, episodes: Sequence[Episode], step: int, *, count: int = 2, histograms: Numbers | None = None
) -> None:
    """Example episodes for the tracker: a strip of views and a transcript each; and histograms of their numbers."""
    # an environment that failed at once left nothing to show
    for number, episode in enumerate([episode for episode in episodes if episode.turns][:count]):
        # a task may be words alone
        if any(turn.observation.images for turn in episode.turns):
            tracker.image(f"rollout/views_{number}", strip(episode), step)
        tracker.text(f"rollout/words_{number}", transcript(episode), step)
    for name, values in (histograms or {}).items():
        if len(values):
            tracker.histogram(f"rollout/{name}", values, step)


def strip(episode: Episode) -> Image:
    """An episode's views side by side."""
    return np.concatenate([view for turn in episode.turns for view in turn.observation.images.values()], axis=1)


def frame_strip(frames: Image, most: int = 12) -> Image:
    """Up to `most` frames of (t, h, w, 3), spread over the episode, side by side."""
    chosen = np.linspace(0, len(frames) - 1, min(most, len(frames))).round().astype(int)
    return np.concatenate(list(frames[chosen]), axis=1)


def enlarge(picture: Image) -> Image:
    """Every pixel as a block of `ENLARGED` by `ENLARGED`."""
    return picture.repeat(ENLARGED, axis=0).repeat(ENLARGED, axis=1)


def camera_frames(turns: Iterable[Turn]) -> list[Image]:
    """Video frames: all cameras side by side, enlarged, step by step."""
    return [enlarge(np.concatenate(list(turn.observation.images.values()), axis=1)) for turn in turns]


def transcript(episode: Episode) -> str:
    """What was asked and said, turn by turn."""
    lines = [f"{turn.observation.text}\n    {turn.decision.action}" for turn in episode.turns]
    return "\n".join([*lines, f"return {episode.total_reward:.2f}"])


# ---- kept episodes


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


def fingerprint(checkpoint: Path) -> dict[str, Any]:
    """Tells one checkpoint from another at the same place, without reading its weights."""
    files = sorted(checkpoint.rglob("*.safetensors"))
    return {"checkpoint": str(checkpoint), "files": [(f.name, f.stat().st_size, f.stat().st_mtime_ns) for f in files]}


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
