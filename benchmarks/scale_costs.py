"""The cost model beside small runs: rates fitted to some of them predict the others."""

from __future__ import annotations

import statistics
import time
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
from scipy.optimize import nnls

from benchmarks.nav_update import credited, learn
from benchmarks.report import Row
from benchmarks.walks import Load, RecordedWalk, make_specs, make_walks, open_checkpoint
from lookact.models.vlm.policy import ChatVLM
from lookact.planning.costs import (
    ModelShape,
    Rates,
    Work,
    decode_flops,
    forward_flops,
    prefill_flops,
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


@dataclass(frozen=True)
class Measured:
    """A small run: what was done, and how long it took."""

    work: Work
    act_seconds: float
    learn_seconds: float


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


def measured_work(episodes: Sequence[Episode], *, image_tokens: float) -> Work:
    """What was done in these episodes, run side by side in one batch."""
    counts = np.zeros(5)
    longest: dict[int, int] = {}
    for episode in episodes:
        past = 0
        for number, turn in enumerate(episode.turns):
            assert turn.decision.prompt_ids is not None
            prompt, reply = len(turn.decision.prompt_ids), len(turn.decision.logprobs)
            past = 0 if turn.decision.fresh else past
            read, drawn = pairs_of(prompt, past), pairs_of(reply, past + prompt)
            counts += (len(turn.observation.images), prompt, reply, read, drawn)
            past += prompt + reply
            longest[number] = max(longest.get(number, 0), reply)
    images, prompts, replies, prompt_pairs, sampled_pairs = counts.tolist()
    steps = float(sum(len(episode.turns) for episode in episodes))
    return Work(
        episodes=float(len(episodes)),
        env_steps=steps,
        images=images,
        image_tokens=image_tokens,
        prompt_tokens=prompts,
        sampled_tokens=replies,
        prompt_pairs=prompt_pairs,
        sampled_pairs=sampled_pairs,
        rounds=float(sum(longest.values())),
    )


def pairs_of(tokens: float, past: float) -> float:
    """How many keys the queries of a block look at: all that is past, and those before them in the block."""
    return tokens * past + tokens * (tokens + 1) / 2


def fit_rates(shape: ModelShape, runs: Sequence[Measured], *, env_seconds: float) -> Rates:
    """The rates under which the runs would take what they took, by least squares on relative errors, none negative."""
    rows = [(prefill_flops(shape, r.work), decode_flops(shape, r.work), r.work.rounds) for r in runs]
    left = np.array([r.act_seconds - r.work.env_steps * env_seconds for r in runs])
    scale = np.array(rows).max(axis=0)
    solved, _ = nnls(np.array(rows) / scale / left[:, None], np.ones(len(runs)))
    prefill, decode, each_step = solved / scale
    learned = np.array([3.0 * forward_flops(shape, r.work) for r in runs])
    slowness = np.median(np.array([r.learn_seconds for r in runs]) / learned)
    return Rates(
        prefill=float(1.0 / max(prefill, 1e-30)),
        decode=float(1.0 / max(decode, 1e-30)),
        decode_step_seconds=float(each_step),
        update=float(1.0 / slowness),
        env_seconds=env_seconds,
    )
