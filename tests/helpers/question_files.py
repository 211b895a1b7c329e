"""Question files in VSI-Bench's format, for tests that load them."""

import dataclasses
import json
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq

from lookact.envs.rooms.vsi import SCHEMA, Question


def save_questions(questions: list[Question], path: Path) -> None:
    """A parquet or JSONL file, by its ending."""
    rows = [dataclasses.asdict(question) for question in questions]
    path.parent.mkdir(parents=True, exist_ok=True)
    if path.suffix == ".parquet":
        pq.write_table(pa.Table.from_pylist(rows, schema=SCHEMA), path)
    else:
        path.write_text("".join(f"{json.dumps(row)}\n" for row in rows))
