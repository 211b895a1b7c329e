"""Tables that grow with a run, and that a resumed run cuts back to where it goes on from."""

from __future__ import annotations

import csv
import io
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from lookact.training.atomic_io import write_text

QUERY_COLUMNS = ("ground_truth_score_1", "ground_truth_score_2", "vlm_predicted_label", "timestamp", "train_iter")
"""Of vlm_query_log.csv."""
EVAL_COLUMNS = ("step", "success_rate", "episode_return", "episodes")
"""Of eval.csv; `step` counts decisions."""


class Table:
    """A CSV file with a header; its rows are part of a checkpoint, so that no row is lost or written twice."""

    def __init__(self, path: Path, columns: Sequence[str]) -> None:
        self.path, self.columns = path, tuple(columns)
        self.rows: list[list[str]] = []

    def __len__(self) -> int:
        return len(self.rows)

    def extend(self, rows: Sequence[Sequence[Any]]) -> None:
        """Append rows, and have them on the disk."""
        self.rows += [[str(cell) for cell in row] for row in rows]
        if not self.path.exists():
            self._rewrite()
            return
        with self.path.open("a", newline="") as file:
            csv.writer(file).writerows(rows)

    def state_dict(self) -> dict[str, Any]:
        return {"rows": [list(row) for row in self.rows]}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Go on from these rows: whatever the file holds beyond them was of steps that are taken again."""
        self.rows = [list(row) for row in state["rows"]]
        self._rewrite()

    def begin(self) -> None:
        """An empty table, for a run from its start."""
        self.load_state_dict({"rows": []})

    def _rewrite(self) -> None:
        self.path.parent.mkdir(parents=True, exist_ok=True)
        text = io.StringIO(newline="")
        csv.writer(text).writerows([self.columns, *self.rows])
        write_text(self.path, text.getvalue())
