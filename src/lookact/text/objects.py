"""Where the JSON objects of a reply stand: spans in text that may hold anything else besides.

Every character that matters to JSON's structure is ASCII, so the same functions serve text and bytes read as Latin-1.
"""

from __future__ import annotations

import json
import re
from dataclasses import dataclass
from typing import Any

Span = tuple[int, int]
"""First character, and the one after the last."""

_OPENING = re.compile(r'\{(?=[ \t\r\n]*["}])')
_STRUCTURE = re.compile(r'\\.|[{}"\n]', re.DOTALL)


@dataclass(frozen=True)
class FoundObject:
    """A complete JSON object and where it stands."""

    span: Span
    value: dict[str, Any]


def _integer(digits: str) -> int | float:
    # Python refuses to read integers of more than 4,300 digits; as a float they are simply infinite
    return int(digits) if len(digits) < 400 else float(digits)


_DECODER = json.JSONDecoder(parse_int=_integer)


def last_object(text: str) -> FoundObject | None:
    """The last complete JSON object that is not part of another complete one, or None.

    A brace that opens no valid object is stepped over, so stray braces and quotes in the reasoning do no harm.
    """
    found, opening = None, _OPENING.search(text)
    while opening:
        start = opening.start()
        try:
            value, stop = _DECODER.raw_decode(text, start)
        except (ValueError, RecursionError):
            stop = start + 1
        else:
            found = FoundObject((start, stop), value)
        opening = _OPENING.search(text, stop)
    return found


def brace_spans(text: str) -> tuple[list[Span], list[int]]:
    """The outermost balanced `{...}` of text that need not be valid JSON, and the starts of braces never closed.

    Braces inside strings don't count; a string ends at a newline at the latest, as in JSON.
    """
    closed: list[Span] = []
    unclosed: list[int] = []
    in_string = False
    for match in _STRUCTURE.finditer(text):
        mark, at = match.group(), match.start()
        if mark == '"':
            in_string = bool(unclosed) and not in_string
        elif mark == "\n":
            in_string = False
        elif mark == "{" and not in_string:
            unclosed.append(at)
        elif mark == "}" and not in_string and unclosed:
            start = unclosed.pop()
            while closed and closed[-1][0] > start:
                closed.pop()
            closed.append((start, at + 1))
    return closed, unclosed
