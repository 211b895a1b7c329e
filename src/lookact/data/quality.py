"""What episodes came to: their numbers, how well actions were found, and whether one can be trained on.

The quality is that of the episode's worst turn:

- `good`: every action was found by brace depth (or the policy needs no search, as in control);
- `low_confidence`: some action was cut off and found by regex;
- `fallback_used`: some action was only guessed as the last tokens, or not found at all.

An episode is valid if each turn has a readable action and the environment did not fail. This module only judges:
what becomes of an invalid episode is for the recipe to decide.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from lookact.errors import ParseError
from lookact.text.actions import parse_json_object, parse_move_or_answer
from lookact.types import Decision, Episode

QUALITIES = ("good", "low_confidence", "fallback_used")
METHODS = ("brace_depth", "regex", "last_n", "failed")

NO_TURNS = "no turns"
NO_ACTION = "no action found"
INVALID_JSON = "invalid JSON"
INVALID_ACTION = "invalid action"
ENVIRONMENT_ERROR = "environment error"

_RANK = {"regex": 1, "last_n": 2, "failed": 2}


@dataclass(frozen=True)
class Quality:
    """One episode's judgement, as the manifest keeps it."""

    quality: str
    """One of `QUALITIES`."""
    is_valid: bool
    dropout_reason: str | None
    """The first cause of being invalid."""


@dataclass(frozen=True)
class QualitySummary:
    """What a batch of episodes amounts to."""

    episodes: int
    methods: Mapping[str, int]
    """Turns per masking method, every method named."""
    qualities: Mapping[str, int]
    """Episodes per quality, every quality named."""
    dropout_rate: float
    """The share of invalid episodes; 0 for no episodes."""
    reasons: Mapping[str, int]
    """Invalid episodes per first cause."""


def episode_numbers(episodes: Sequence[Episode], outcome: Mapping[str, str]) -> dict[str, NDArray[np.float64]]:
    """One number an episode of each kind; one that failed before its first turn counts as a failure.

    `outcome` maps the names of a task's own numbers to their keys in the last turn's info.
    """
    last = [episode.turns[-1].info if episode.turns else {} for episode in episodes]
    valid = [np.mean([t.info["valid_action"] for t in e.turns]) if e.turns else 0.0 for e in episodes]
    return {name: np.array([float(info.get(key, 0.0)) for info in last]) for name, key in outcome.items()} | {
        "return": np.array([episode.total_reward for episode in episodes]),
        "turns": np.array([float(len(episode.turns)) for episode in episodes]),
        "valid_action_rate": np.array(valid),
        "error_rate": np.array([float(episode.error is not None) for episode in episodes]),
        "tokens": np.array([float(sum(len(t.decision.logprobs) for t in e.turns)) for e in episodes]),
    }


def judge_quality(episode: Episode) -> Quality:
    """The episode's masking quality, and the first reason not to trust it, if any."""
    worst = max((_RANK.get(turn.decision.mask_method, 0) for turn in episode.turns), default=0)
    reason = _first_cause(episode)
    return Quality(QUALITIES[worst], reason is None, reason)


def summarise(episodes: Iterable[Episode]) -> QualitySummary:
    """Counts over episodes: methods by turn, qualities and reasons by episode."""
    return count_qualities(
        (judge_quality(episode), [turn.decision.mask_method for turn in episode.turns]) for episode in episodes
    )


def count_qualities(judged: Iterable[tuple[Quality, Iterable[str]]]) -> QualitySummary:
    """The same of judgements that were made before, each with the masking method of every turn."""
    methods, qualities, reasons = Counter[str](), Counter[str](), Counter[str]()
    for verdict, found in judged:
        methods.update(found)
        qualities[verdict.quality] += 1
        if verdict.dropout_reason is not None:
            reasons[verdict.dropout_reason] += 1
    return QualitySummary(
        episodes=qualities.total(),
        methods={method: methods[method] for method in METHODS},
        qualities={name: qualities[name] for name in QUALITIES},
        dropout_rate=reasons.total() / max(1, qualities.total()),
        reasons=dict(reasons),
    )


def _first_cause(episode: Episode) -> str | None:
    for turn in episode.turns:
        cause = _cause(turn.decision)
        if cause is not None:
            return cause
    # an environment's failure ends the episode, so it comes after the turns
    if episode.error is not None:
        return ENVIRONMENT_ERROR
    return None if episode.turns else NO_TURNS


def _cause(decision: Decision) -> str | None:
    """What is wrong with one turn's action; action vectors are always readable."""
    if decision.mask_method == "failed":
        return NO_ACTION
    if not isinstance(decision.action, str):
        return None
    try:
        parse_json_object(decision.action)
    except ParseError:
        return INVALID_JSON
    try:
        parse_move_or_answer(decision.action)
    except ParseError:
        return INVALID_ACTION
    return None
