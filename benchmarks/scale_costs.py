"""The cost model beside small runs: rates fitted to some of them predict the others."""

from __future__ import annotations

import statistics
import time
from collections.abc import Mapping, Sequence
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

from benchmarks.nav_update import credited, learn
from benchmarks.report import Row
from benchmarks.walks import Load, RecordedWalk, make_specs, make_walks, open_checkpoint
from lookact.models.vlm.policy import ChatVLM
from lookact.planning.costs import (
    Measured,
    ModelShape,
    Rates,
    Work,
    fit_rates,
    measured_work,
    rollout_seconds,
    shape_of,
    update_seconds,
)
from lookact.rollout.collect import collect
from lookact.rollout.samplers.hf import HFSampler
from lookact.types import Episode

KNOWN = 4
"""Runs that rates are fitted to; those after them are predicted."""
REPETITIONS = 2


def costs_row(folder: Path, load: Load) -> Row:
    """Measured over predicted seconds of rollouts and updates, in runs that the rates do not know."""
    chat = open_checkpoint(folder)
    shape, runs = shape_of(chat.config), measure_runs(chat, load)
    predicted = predict(shape, runs)
    ratios = [run.act_seconds / act for run, (act, _) in zip(runs[KNOWN:], predicted)]
    ratios += [run.learn_seconds / learned for run, (_, learned) in zip(runs[KNOWN:], predicted)]
    measured_sum = sum(run.act_seconds + run.learn_seconds for run in runs[KNOWN:])
    return Row(
        name="seconds beside the cost model's",
        ours=f"{measured_sum:.2f} s measured",
        against=f"{sum(map(sum, predicted)):.2f} s predicted",
        ratio=statistics.median(ratios),
        ratio_range=(min(ratios), max(ratios)),
        detail={"shape": asdict(shape), "runs": [asdict(run) for run in runs]},
    )


def measure_runs(chat: ChatVLM, load: Load) -> list[Measured]:
    """CPU seconds of rollout and update, from a few short episodes to many long ones."""
    known = [replace(load, groups=1, size=4, turns=3), replace(load, groups=2, size=8, turns=3)]
    known += [replace(load, groups=1, size=4, turns=8), replace(load, groups=1, size=8, turns=5, reply_tokens=16)]
    predicted = [replace(load, groups=4, size=8, turns=8), replace(load, groups=2, size=8, turns=6, reply_tokens=12)]
    return [measure_run(chat, each) for each in (*known, *predicted)]


def measure_run(chat: ChatVLM, load: Load) -> Measured:
    """The least of a few repetitions: whatever else the machine does only adds."""
    walks, plans, actor = make_walks(load), make_specs(load), HFSampler(chat, load.sampling)
    acted, learned = [], []
    episodes: list[Episode] = []
    for _ in range(REPETITIONS):
        began = time.process_time()
        episodes = collect(plans, [RecordedWalk(walks) for _ in plans], actor)
        between = time.process_time()
        learn(chat, credited(episodes), load)
        acted.append(between - began)
        learned.append(time.process_time() - between)
        chat.zero_grad()
    tokens = (load.image_size // 32) ** 2
    return Measured(measured_work(episodes, image_tokens=tokens), min(acted), min(learned))


def predict(shape: ModelShape, runs: Sequence[Measured]) -> list[tuple[float, float]]:
    """Seconds of rollout and of update in the runs after the first few, by rates fitted to those."""
    rates: Rates = fit_rates(shape, runs[:KNOWN], env_seconds=0.0)
    return [(rollout_seconds(shape, run.work, rates), update_seconds(shape, run.work, rates)) for run in runs[KNOWN:]]


def read_runs(detail: Mapping[str, Any]) -> tuple[ModelShape, list[Measured]]:
    """What a bench's record says was measured."""
    runs = [Measured(Work(**run["work"]), run["act_seconds"], run["learn_seconds"]) for run in detail["runs"]]
    return ModelShape(**detail["shape"]), runs
