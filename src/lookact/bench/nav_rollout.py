"""Rollout with keys and values kept across turns, beside reading the whole conversation again in every turn."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path

from lookact.bench.prefill_actor import PrefillActor
from lookact.bench.timing import Facts, Work
from lookact.bench.walks import Load, RecordedWalk, make_plans, make_walks, open_checkpoint
from lookact.models.chat_vlm import ChatVLM
from lookact.protocols import Actor
from lookact.rollout.collect import collect
from lookact.rollout.hf_actor import HFActor
from lookact.rollout.settings import Sampling
from lookact.types import Episode


def keeps(folder: Path, load: Load) -> Work:
    """LookAct's actor."""
    return _rollout(folder, load, HFActor)


def rereads(folder: Path, load: Load) -> Work:
    """The same, without a memory of earlier turns."""
    return _rollout(folder, load, PrefillActor)


def _rollout(folder: Path, load: Load, make_actor: Callable[[ChatVLM, Sampling], Actor]) -> Work:
    actor = make_actor(open_checkpoint(folder), load.sampling)
    walks, plans = make_walks(load), make_plans(load)

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
