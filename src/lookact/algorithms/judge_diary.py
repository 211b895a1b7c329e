"""A judge's diary: every pair it was asked about, with the pictures, the questions, its words and the truth."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from lookact.data.pictures import encode_jpeg
from lookact.errors import DataError
from lookact.training.atomic_io import write_text
from lookact.types import Preference

FILE, PICTURES = "queries.jsonl", "pictures"
BETWEEN_REPLIES = "\n---\n"
"""As a judge joins the replies of several steps."""


@dataclass(frozen=True)
class JudgedPair:
    """A line of the diary."""

    round: int
    pair: int
    images: list[str]
    """Paths from the diary's folder, of the first and the second."""
    goal: str
    prompts: list[str]
    """Templates of the questions, in the order they were asked."""
    replies: list[str]
    """To each question; of a judge who describes first, the description and the verdict."""
    verdict: int
    truth: int
    true_scores: list[float]


class JudgeDiary:
    """Appends to `queries.jsonl` in a folder, and writes each picture beside it."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    def extend(
        self,
        number: int,
        goal: str,
        prompts: Sequence[str],
        preferences: Sequence[Preference],
        scores: NDArray[np.float64],
    ) -> None:
        """A feedback round's preferences with their true scores (n, 2)."""
        (self.folder / PICTURES).mkdir(parents=True, exist_ok=True)
        lines = []
        for place, (told, (first, second)) in enumerate(zip(preferences, scores.tolist())):
            names = [f"{PICTURES}/{number:05d}-{place:04d}-{side}.jpg" for side in range(2)]
            for name, image in zip(names, (told.first, told.second)):
                (self.folder / name).write_bytes(encode_jpeg(image))
            truth = -1 if first == second else int(second > first)
            replies = told.raw_text.split(BETWEEN_REPLIES)
            judged = JudgedPair(
                number, place, names, goal, list(prompts), replies, told.verdict, truth, [first, second]
            )
            lines.append(json.dumps(asdict(judged)) + "\n")
        with (self.folder / FILE).open("a", encoding="utf-8") as file:
            file.writelines(lines)

    def keep(self, count: int) -> None:
        """Go on after the first `count` lines: what the file holds beyond them is asked again."""
        path = self.folder / FILE
        if path.exists():
            lines = path.read_text(encoding="utf-8").splitlines(keepends=True)
            write_text(path, "".join(lines[:count]))


def read_diary(folder: Path) -> list[JudgedPair]:
    """The diary of a run, by the run's folder or the diary's own."""
    path = next((path for path in (folder / "judge" / FILE, folder / FILE, folder) if path.is_file()), None)
    if path is None:
        raise DataError(f"no judge's diary in {folder}: give the folder of a pref-sac run whose judge saw pictures")
    found = []
    for line, text in enumerate(path.read_text(encoding="utf-8").splitlines(), 1):
        try:
            values: dict[str, Any] = json.loads(text)
            values["images"] = [str(path.parent / name) for name in values["images"]]
            found.append(JudgedPair(**values))
        except (ValueError, TypeError, KeyError) as error:
            raise DataError(f"{path} line {line} is no line of a judge's diary: {error}") from error
    return found
