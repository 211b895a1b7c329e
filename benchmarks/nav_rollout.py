"""Rollout with keys and values kept across turns, beside reading the whole conversation again in every turn."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path

from benchmarks.prefill_actor import PrefillActor
from benchmarks.timing import Facts, Work
from benchmarks.walks import Load, RecordedWalk, make_specs, make_walks, open_checkpoint
from lookact.models.vlm.policy import ChatVLM
from lookact.protocols import Actor
from lookact.rollout.collect import collect
from lookact.rollout.samplers.hf import HFSampler
from lookact.rollout.samplers.settings import Sampling
from lookact.types import Episode


def keeps(folder: Path, load: Load) -> Work:
    """LookAct's actor."""
    return _rollout(folder, load, HFSampler)


def rereads(folder: Path, load: Load) -> Work:
    """The same, without a memory of earlier turns."""
    return _rollout(folder, load, PrefillActor)


def _rollout(folder: Path, load: Load, make_actor: Callable[[ChatVLM, Sampling], Actor]) -> Work:
    actor = make_actor(open_checkpoint(folder), load.sampling)
    walks, plans = make_walks(load), make_specs(load)

    def work() -> Facts:
        return count(collect(plans, [RecordedWalk(walks) for _ in plans], actor))

    return work


def count(episodes: Sequence[Episode]) -> Facts:
    """What was done: equal on both sides of an honest comparison."""
    turns = [turn for episode in episodes for turn in episode.turns]
    return {
        "episodes": len(episodes),
        "turns": len(turns),
        "sampled_tokens": sum(len(turn.decision.logprobs) for turn in turns),
        "prompt_tokens": sum(len(turn.decision.prompt_ids) for turn in turns if turn.decision.prompt_ids is not None),
    }
