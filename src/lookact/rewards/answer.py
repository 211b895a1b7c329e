"""Rewards of a question's episode, turn by turn: for the answer, for the form of the replies, for taking time."""

from __future__ import annotations

from lookact.text.answers import is_numeric
from lookact.types import Episode, Turn


def answer_score(episode: Episode) -> list[float]:
    """VSI-Bench's score of the answer in the turn that gave it, 0 elsewhere."""
    return [float(turn.info["answer_reward"]) for turn in episode.turns]


def format_fault(episode: Episode) -> list[float]:
    """-1 in turns whose reply is no action, or answers with a letter for a number or a number for a letter."""
    return [0.0 if well_formed(turn) else -1.0 for turn in episode.turns]


def turn_taken(episode: Episode) -> list[float]:
    """-1 in turns that do not answer."""
    return [0.0 if turn.info["answered"] else -1.0 for turn in episode.turns]


def well_formed(turn: Turn) -> bool:
    """Whether the reply was an action, and its answer, if it gave one, of the kind that was asked for."""
    if not turn.info["valid_action"] or not turn.info["answered"]:
        return bool(turn.info["valid_action"])
    word = str(turn.info["prediction"]).strip()
    return _is_number(word) == is_numeric(turn.info["question_type"])


def _is_number(word: str) -> bool:
    try:
        float(word)
    except ValueError:
        return False
    return True
