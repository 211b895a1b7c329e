"""Questions about rooms in VSI-Bench's format, and the scene notes it comes with.

VSI-Bench's own rows are a test set. A row counts as one when its file's name says so (test-00000-of-00001.parquet,
vsi_bench.jsonl), when its `split` column says test, when it has no split and its dataset's name holds one of
VSI-Bench's three, or when its scene is VSI-Bench's. Loading such rows to train on them is refused unless forced.
"""

from __future__ import annotations

import json
import math
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from lookact.envs.rooms.benchmark_scenes import why_test
from lookact.envs.rooms.scene import Array, Box, Scene, canonical_label
from lookact.errors import DataError
from lookact.text.answers import official_prompt

TEST_NAME = re.compile(r"(^|[^a-z])(test|vsi[-_ ]?bench)([^a-z]|$)")
EXTENT_NOISE = 0.05
"""Metres; some extents are those of the scanned points, not of the box."""
SCHEMA = pa.schema(
    [
        ("id", pa.int64()),
        *((name, pa.string()) for name in ("dataset", "scene_name", "question_type", "question", "ground_truth")),
        ("options", pa.list_(pa.string())),
    ]
)


@dataclass(frozen=True)
class Question:
    """One row of VSI-Bench."""

    id: int
    dataset: str
    """Where the scene is from; "generated" for questions that LookAct asked itself."""
    scene_name: str
    question_type: str
    question: str
    ground_truth: str
    """The letter of the right option, or a number."""
    options: tuple[str, ...] | None = None
    """Such as "A. left"; None where a number is asked for."""


def load_questions(path: str | Path, *, purpose: str = "train", train_on_test: bool = False) -> list[Question]:
    """The questions in a parquet or JSONL file, for `purpose` "train" or "test"."""
    path = Path(path)
    if purpose not in ("train", "test"):
        raise DataError(f"purpose '{purpose}' is unknown; use train or test")
    rows = _read_rows(path)
    if purpose == "train" and not train_on_test:
        for number, row in enumerate(rows, start=1):
            _refuse_test_row(path, number, row)
    return [_question(path, number, row) for number, row in enumerate(rows, start=1)]


def format_prompt(question: Question) -> str:
    """What a model that walks is asked: VSI-Bench's prompt without the line about frames of a video."""
    return official_prompt(question.question_type, question.question, question.options).partition("\n")[2]


def load_scene_notes(path: str | Path) -> dict[str, Scene]:
    """The scenes of a `*_val.json`, by name: boxes and room size, without mesh or trajectory.

    The floor plan is a square of the room's size, which answers how large the room is and nothing else.
    """
    path = Path(path)
    try:
        content = json.loads(path.read_text())
        return {name: _scene_from_notes(name, notes) for name, notes in content.items()}
    except OSError as error:
        raise DataError(f"{path}: cannot be read ({error.strerror})") from None
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        raise DataError(f"{path}: is not a file of scene notes ({type(error).__name__}: {error})") from None


def _read_rows(path: Path) -> list[dict[str, Any]]:
    try:
        if path.suffix == ".parquet":
            rows: list[dict[str, Any]] = pq.read_table(path).to_pylist()
            return rows
        lines = path.read_text().splitlines()
    except OSError as error:
        # pyarrow's own errors have no strerror
        raise DataError(f"{path}: cannot be read ({error.strerror or type(error).__name__})") from None
    except (pa.ArrowException, UnicodeDecodeError) as error:
        raise DataError(f"{path}: is torn or not what its ending says ({type(error).__name__})") from None
    rows = []
    for number, line in enumerate(lines, start=1):
        if line.strip():
            try:
                rows.append(dict(json.loads(line)))
            except (ValueError, TypeError) as error:
                raise DataError(f"{path}: line {number} is not a JSON object ({error})") from None
    return rows


def _refuse_test_row(path: Path, number: int, row: Mapping[str, Any]) -> None:
    remedy = "load it with purpose='test', or force it with train_on_test=True"
    if TEST_NAME.search(path.stem.lower()):
        raise DataError(f"{path}: by its name this is test data, which is not for training; {remedy}")
    if why := why_test(str(row.get("dataset")), row.get("split"), str(row.get("scene_name"))):
        raise DataError(f"{path}: row {number} {why}, which is not for training; {remedy}")


def _question(path: Path, number: int, row: Mapping[str, Any]) -> Question:
    missing = [name for name in SCHEMA.names if row.get(name) is None and name != "options"]
    if missing:
        raise DataError(f"{path}: row {number} lacks {', '.join(missing)}")
    options = row.get("options")
    texts = {name: str(row[name]) for name in SCHEMA.names[1:6]}
    try:
        # some mirrors give numeric questions an empty list
        return Question(int(row["id"]), **texts, options=tuple(map(str, options)) if options else None)
    except (ValueError, TypeError):
        raise DataError(f"{path}: row {number} has the id {row['id']!r}; it must be a whole number") from None


def _scene_from_notes(name: str, notes: Mapping[str, Any]) -> Scene:
    boxes = tuple(
        _box(f"{name}/{label}/{number}", canonical_label(label), entry)
        for label, entries in notes["object_bbox"].items()
        for number, entry in enumerate(entries)
    )
    half = math.sqrt(float(notes["room_size"])) / 2
    square = half * np.array([[-1.0, -1.0], [1.0, -1.0], [1.0, 1.0], [-1.0, 1.0]])
    return Scene(
        id=name,
        vertices=np.zeros((0, 3), np.float32),
        faces=np.zeros((0, 3), np.int32),
        colors=np.zeros((0, 3), np.uint8),
        instances=np.zeros(0, np.int32),
        boxes=boxes,
        floor=square + np.array(notes["room_center"], dtype=np.float64)[:2],
        trajectory=np.zeros((0, 4, 4)),
    )


def _box(uid: str, label: str, entry: Mapping[str, Sequence[float]]) -> Box:
    """The axes are rows, unless only as columns they fit the given extent: not all sources agree on it.

    For a box that is only turned about the vertical both fit alike, and the axes are taken as rows.
    """
    centroid, size = (np.array(entry[name], dtype=np.float64).reshape(3) for name in ("centroid", "axesLengths"))
    axes = np.array(entry["normalizedAxes"], dtype=np.float64).reshape(3, 3)
    rows, columns = Box(uid, label, centroid, size, axes), Box(uid, label, centroid, size, axes.T)
    if "min" not in entry or "max" not in entry:
        return rows
    extent = np.array([entry["min"], entry["max"]], dtype=np.float64).reshape(2, 3)
    return columns if _misfit(columns, extent) < _misfit(rows, extent) - EXTENT_NOISE else rows


def _misfit(box: Box, extent: Array) -> float:
    """Metres by which a box's lowest and highest coordinates differ from (2, 3) at the worst."""
    corners = box.corners()
    return float(np.abs(np.stack([corners.min(axis=0), corners.max(axis=0)]) - extent).max())
