"""A judge's diary as records: the pairs of pictures it was asked about, what it said, and the truth."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from lookact.algorithms.judge_diary import FILE as DIARY
from lookact.viewer.folder import NotFound, inside, read_tail, to_json

JUDGE = "judge"
DIARY_BYTES = 8 << 20
"""Of the diary's end: some thousands of pairs."""
MAX_PAIRS = 2000


def list_pairs(root: Path, place: str) -> list[dict[str, Any]]:
    """The last pairs that a run's judge was asked about, in their order; empty where it kept no diary.

    A line that is torn, or no line of a diary, is passed over.
    """
    diary = find_diary(root, place)
    if diary is None:
        return []
    below = diary.parent.relative_to(root).as_posix()
    rows = (pair_row(below, line) for line in read_tail(diary, DIARY_BYTES).splitlines()[-MAX_PAIRS:])
    return [row for row in rows if row is not None]


def find_diary(root: Path, place: str) -> Path | None:
    """A run's diary, where there is one and no link leads to it."""
    try:
        return inside(root, f"{place}/{JUDGE}/{DIARY}")
    except NotFound:
        return None


def pair_row(folder: str, line: str) -> dict[str, Any] | None:
    """A line of the diary as the page takes it: places of both pictures, and how far apart their true scores are."""
    try:
        told = json.loads(line)
        first, second = (float(score) for score in told["true_scores"])
        row = {
            "round": int(told["round"]),
            "pair": int(told["pair"]),
            "pictures": [f"{folder}/{name}" for name in map(str, told["images"])],
            "goal": str(told["goal"]),
            "prompts": [str(text) for text in told["prompts"]],
            "replies": [str(text) for text in told["replies"]],
            "verdict": int(told["verdict"]),
            "truth": int(told["truth"]),
            "scores": [first, second],
            "gap": abs(first - second),
        }
        plain: dict[str, Any] = to_json(row)
        return plain if len(plain["pictures"]) == 2 else None
    except (ValueError, KeyError, TypeError, OverflowError, RecursionError):
        return None
