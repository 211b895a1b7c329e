"""A judge's verdict read from its reply. 0: the first image is better, 1: the second, -1: no preference."""

from __future__ import annotations

import re

from lookact.errors import ParseError

_THINK_TAG = re.compile(r"<(/?)think>", re.IGNORECASE)
_NO_PREFERENCE = re.compile(r"(?<![\w.])[-−–]1(?!\.?\d|\w)")
_CHOICE = re.compile(r"(?<![\w.])[01](?!\.?\d|\w)")
_UNDECIDED = re.compile(
    r"\b(?:uncertain|unsure|not (?:sure|certain)|unclear|undecided"
    r"|(?:can['’]?t|cannot|can not|unable to|hard to|difficult to|impossible to) (?:tell|decide|determine|say|judge)"
    r"|equal(?:ly)?|identical|indistinguishable|the same|tied?|neither"
    r"|no (?:clear |strong |real )?(?:preference|difference|winner))\b",
    re.IGNORECASE,
)


def parse_verdict(text: str) -> int:
    """0, 1 or -1 from a reply, its thinking aside: "-1" first, then the first lone 0 or 1, then words of doubt.

    Raises ParseError for anything else: an unreadable reply is not the same as "no preference".
    """
    spoken = strip_think(text)
    if _NO_PREFERENCE.search(spoken):
        return -1
    choice = _CHOICE.search(spoken)
    if choice:
        return int(choice.group())
    if _UNDECIDED.search(spoken):
        return -1
    raise ParseError(f"no verdict in {spoken[-60:]!r}: the judge must answer 0, 1 or -1")


def strip_think(text: str) -> str:
    """The reply without its `<think>` blocks, nested or not.

    A block never closed runs to the end; one never opened, as when the prompt opened it, runs from the start.
    """
    kept, depth, at = "", 0, 0
    for tag in _THINK_TAG.finditer(text):
        closing = bool(tag.group(1))
        if depth == 0:
            kept = "" if closing else kept + text[at : tag.start()]
        depth = max(0, depth - 1) if closing else depth + 1
        at = tag.end()
    return (kept if depth else kept + text[at:]).strip()
