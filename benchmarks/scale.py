"""What more processes gain on navigation's step: two workers on Ray beside one, acting ahead beside taking turns.

The ideal stands beside each: two workers halve the time of acting; acting ahead hides the shorter of acting and
learning behind the longer. Times are wall seconds, since what is measured is how processes share a machine.
"""

from __future__ import annotations

import importlib.util
import statistics
import tempfile
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

from benchmarks.nav_update import credited, learn
from benchmarks.report import Row, plain
from benchmarks.scale_costs import costs_row
from benchmarks.walks import Load, RecordedWalk, make_checkpoint, make_specs, make_walks, open_checkpoint
from lookact.rollout.ray.worker import WorkerContext
from lookact.rollout.samplers.hf import HFSampler
from lookact.training.optim import NonFiniteGuard, build_adamw, clip_and_step
from lookact.training.progress import progress
from lookact.types import Episode, EpisodeSpec

WITHOUT_RAY = "not installed: pip install 'lookact[ray]'"
HALF_A_CORE = 0.5
"""As Ray counts: three workers and the learner must fit on two cores, of whom never more than two are at work."""


@dataclass(frozen=True)
class Laps:
    """Wall seconds of each repetition."""

    one: tuple[float, ...]
    """One worker acts."""
    two: tuple[float, ...]
    learn: tuple[float, ...]
    ahead: tuple[float, ...]
    """One worker acts for the next step while the learner learns."""


def main(*, load: Load | None = None, repetitions: int = 5) -> dict[str, Any]:
    """Both gains, and how well the cost model predicts seconds, on a tiny checkpoint."""
    load = load or Load(groups=4, size=8)
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        make_checkpoint(folder, load)
        rows = [] if importlib.util.find_spec("ray") is None else ray_rows(measure(folder, load, repetitions))
        rows.append(costs_row(folder, load))
    absent = [] if len(rows) > 1 else [f"Ray is {WITHOUT_RAY}"]
    return plain(
        rows,
        about=f"nav-rloo's step on more processes: a tiny Qwen3-VL, {load.environments} episodes of {load.turns} turns",
        notes=[
            "times are wall seconds, medians over repetitions taken in turn; each process has one thread",
            "one worker gives the same episodes as two, bit for bit: chunks are cut by the plans' order alone",
            "acting ahead: the learner learns from a step's episodes while a worker acts for the next step",
            "cost model: rates are fitted to the CPU seconds of small runs and predict larger ones",
            *absent,
        ],
    )


def measure(folder: Path, load: Load, repetitions: int) -> Laps:
    """Repetitions in turn, after one that does not count."""
    from lookact.rollout.ray.pool import RayPool, join_cluster, leave_cluster

    joined = join_cluster(cpus=2)
    make = partial(make_context, folder, load)
    chunk = max(1, load.environments // 4)
    one, two = (RayPool(make, workers=workers, chunk_size=chunk, cpus=HALF_A_CORE) for workers in (1, 2))
    step, plans = learner(folder, load), make_specs(load)
    laps = []
    try:
        for _ in progress(range(1 + repetitions), "measuring"):
            acted_by_one, episodes = timed(partial(one.collect, plans))
            acted_by_two, _ = timed(partial(two.collect, plans))
            learned, _ = timed(partial(step, episodes))
            ahead, _ = timed(partial(act_ahead, one, plans, partial(step, episodes)))
            laps.append((acted_by_one, acted_by_two, learned, ahead))
    finally:
        for pool in (one, two):
            pool.close()
        if joined:
            leave_cluster()
    first, second, third, fourth = zip(*laps[1:])
    return Laps(first, second, third, fourth)


def make_context(folder: Path, load: Load) -> WorkerContext:
    """A worker's engine and walks."""
    chat, walks = open_checkpoint(folder), make_walks(load)
    return WorkerContext(
        HFSampler(chat, load.sampling), [RecordedWalk(walks) for _ in range(load.environments)], chat.model
    )


def learner(folder: Path, load: Load) -> Callable[[Sequence[Episode]], None]:
    """Credit, gradients and a step on a checkpoint of its own."""
    chat = open_checkpoint(folder)
    optimizer, guard = build_adamw({"policy": chat}, lr=1e-9), NonFiniteGuard()

    def step(episodes: Sequence[Episode]) -> None:
        loss = learn(chat, credited(episodes), load)
        clip_and_step(optimizer, chat.parameters(), max_norm=1.0, guard=guard, loss=loss)

    return step


def act_ahead(pool: Any, plans: Sequence[EpisodeSpec], step: Callable[[], None]) -> None:
    """The next step's episodes are run while this step learns."""
    coming = pool.start(plans)
    step()
    coming.result()


def timed(work: Callable[[], Any]) -> tuple[float, Any]:
    began = time.perf_counter()
    result = work()
    return time.perf_counter() - began, result


def ray_rows(laps: Laps) -> list[Row]:
    """Each gain beside its ideal."""
    in_turn = [acted + learned for acted, learned in zip(laps.one, laps.learn)]
    longer = [max(acted, learned) for acted, learned in zip(laps.one, laps.learn)]
    ideal = statistics.median(a / b for a, b in zip(in_turn, longer))
    return [
        gain_row("acting with two workers", laps.two, "one worker", laps.one, 2.0, laps),
        gain_row("acting ahead with one worker", laps.ahead, "in turn", in_turn, ideal, laps),
    ]


def gain_row(name: str, ours: Sequence[float], other: str, against: Sequence[float], ideal: float, laps: Laps) -> Row:
    ratios = [slow / fast for slow, fast in zip(against, ours)]
    return Row(
        name=f"{name} (ideal {ideal:.2f})",
        ours=f"{statistics.median(ours):.2f} s",
        against=f"{other} {statistics.median(against):.2f} s",
        ratio=statistics.median(ratios),
        ratio_range=(min(ratios), max(ratios)),
        detail={"ideal": ideal, "laps": vars(laps)},
    )
