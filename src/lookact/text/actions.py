"""Actions read from a reply: the last complete JSON object counts, whatever reasoning stands around it."""

from __future__ import annotations

import json
import math
import re
from typing import Any

from lookact.errors import ParseError
from lookact.text.objects import last_object

MOVE_KEYS = ("rotation_angle_degrees", "forward_meters")
ANSWER_KEY = "answer"

_FENCE = re.compile(r"```\w*\s*\Z")


def parse_json_object(text: str) -> dict[str, Any]:
    """The reply's last complete JSON object. Raises ParseError if there is none."""
    found = last_object(text)
    if found is None:
        raise ParseError(_why_none(text))
    return found.value


def parse_action(text: str) -> dict[str, float]:
    """The move a reply asks for, as finite floats under `MOVE_KEYS`; other keys are dropped. Raises ParseError."""
    return _move(parse_json_object(text))


def parse_move_or_answer(text: str) -> dict[str, Any]:
    """`{"answer": str}` if the reply answers, else its move as in `parse_action`. Raises ParseError.

    An answer ends the episode, so it wins over a move in the same object; a null or empty answer is none.
    """
    value = parse_json_object(text)
    answer = value.get(ANSWER_KEY)
    if answer is None or answer == "":
        return {**_move(value)}
    if isinstance(answer, bool) or not isinstance(answer, str | int | float):
        raise ParseError(f"{ANSWER_KEY} is {_shown(answer)}: give a text or a number")
    return {ANSWER_KEY: str(answer)}


def reasoning_of(text: str) -> str:
    """What stands before the action, without the code fence that opens it; all of the reply if it has no action."""
    found = last_object(text)
    if found is None:
        return text.strip()
    return _FENCE.sub("", text[: found.span[0]]).strip()


def _move(value: dict[str, Any]) -> dict[str, float]:
    return {key: _finite(value, key) for key in MOVE_KEYS}


def _finite(value: dict[str, Any], key: str) -> float:
    if key not in value:
        raise ParseError(f"the action has no {key}: it holds {_shown(sorted(value))}")
    number = value[key]
    if isinstance(number, bool) or not isinstance(number, int | float):
        raise ParseError(f"{key} is {_shown(number)}: give a number")
    try:
        finite = float(number)
    except OverflowError:
        finite = math.inf
    if not math.isfinite(finite):
        raise ParseError(f"{key} is not a finite number: {_shown(number)}")
    return finite


def _why_none(text: str) -> str:
    """One line on why no object was found."""
    if "{" in text:
        return f"no complete JSON object: it is cut off or malformed after {_shown(text[text.rfind('{') :])}"
    try:
        kind = type(json.loads(text)).__name__
    except (ValueError, RecursionError):
        return f"no JSON object in the reply: it ends with {_shown(text[-60:])}"
    return f"the reply is a JSON {kind}: give an object in braces"


def _shown(value: Any) -> str:
    """A short repr on one line; safe for numbers too long to print."""
    try:
        shown = repr(value)
    except (ValueError, RecursionError):
        shown = f"a {type(value).__name__} too large to print"
    return shown if len(shown) <= 60 else f"{shown[:57]}..."
