"""Trackers: `metrics.jsonl` always (the source of truth), TensorBoard and W&B beside it; tables that resume."""

from __future__ import annotations

import csv
import errno
import html
import io
import json
import math
import os
import secrets
from collections.abc import Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any, Literal, TextIO

import numpy as np
from numpy.typing import NDArray
from PIL import Image as PILImage

from lookact.errors import ConfigError, DataError, TrainingStopped
from lookact.protocols import Tracker
from lookact.text.file_names import file_name
from lookact.training.atomic_io import write_text
from lookact.training.run_files import METRICS
from lookact.types import Image

WandbMode = Literal["off", "offline", "online"]


def cut_after(path: Path, step: int | None) -> None:
    """Drop the lines of a JSONL file whose step is past `step` (None: all of them), and a torn last line."""
    if not path.exists():
        return
    *lines, torn = path.read_text(encoding="utf-8").split("\n")
    kept = [line for number, line in enumerate(lines, 1) if step is not None and _step_of(line, path, number) <= step]
    write_text(path, "".join(f"{line}\n" for line in kept))


def _step_of(line: str, path: Path, number: int) -> int:
    try:
        return int(json.loads(line)["step"])
    except (ValueError, KeyError, TypeError):
        raise DataError(f"{path}:{number} is not a line of metrics: mend or remove it, then resume") from None


def finite_or_none(value: Any) -> float | None:
    """A number that JSON can hold; what is not finite becomes null."""
    if isinstance(value, int):
        return value
    number = float(value)
    return number if math.isfinite(number) else None


class JsonlTracker:
    """One flushed line a call in `metrics.jsonl`; pictures and texts as files in `samples/`; histograms elsewhere."""

    def __init__(self, folder: Path) -> None:
        self.samples = folder / "samples"
        self.file: TextIO = (folder / METRICS).open("a", encoding="utf-8")

    def log(self, metrics: Mapping[str, float], step: int) -> None:
        line = json.dumps({"step": step} | {name: finite_or_none(value) for name, value in metrics.items()})
        try:
            self.file.write(line + "\n")
            self.file.flush()
        except OSError as error:
            if error.errno != errno.ENOSPC:
                raise
            raise TrainingStopped(
                f"no space left for {self.file.name}: make some, then go on with --auto-resume"
            ) from error

    def image(self, name: str, image: Image, step: int) -> None:
        PILImage.fromarray(image).save(self._sample(name, step, "png"))

    def text(self, name: str, text: str, step: int) -> None:
        self._sample(name, step, "txt").write_text(text, encoding="utf-8")

    def histogram(self, name: str, values: NDArray[np.floating[Any]], step: int) -> None:
        pass

    def close(self) -> None:
        # a line that a full disk did not take was told when it was written
        with suppress(OSError):
            self.file.close()

    def _sample(self, name: str, step: int, suffix: str) -> Path:
        self.samples.mkdir(exist_ok=True)
        return self.samples / f"{file_name(name.replace('/', '_'))}_{step}.{suffix}"


class TensorBoardTracker:
    """Events in `tensorboard/`; a resumed run hides those past the step it goes on from."""

    def __init__(self, folder: Path, *, done: int) -> None:
        from torch.utils.tensorboard import SummaryWriter

        self.writer = SummaryWriter(folder / "tensorboard", purge_step=done + 1 if done else None)

    def log(self, metrics: Mapping[str, float], step: int) -> None:
        for name, value in metrics.items():
            self.writer.add_scalar(name, float(value), step)

    def image(self, name: str, image: Image, step: int) -> None:
        self.writer.add_image(name, image, step, dataformats="HWC")

    def text(self, name: str, text: str, step: int) -> None:
        self.writer.add_text(name, text, step)

    def histogram(self, name: str, values: NDArray[np.floating[Any]], step: int) -> None:
        self.writer.add_histogram(name, values, step)

    def close(self) -> None:
        self.writer.close()


class WandbTracker:
    """One W&B run for the folder, online or offline; a resumed run goes on under the same id.

    `step` is a metric of its own, the x axis of all others: W&B drops numbers logged at a step it has passed, which a
    resumed run does.
    """

    def __init__(self, folder: Path, config: Mapping[str, Any], *, mode: Literal["offline", "online"]) -> None:
        try:
            import wandb
        except ImportError:
            raise ConfigError(
                "wandb is not installed: pip install 'lookact[wandb]', or leave it off with --wandb off"
            ) from None
        self.wandb = wandb
        self.run = wandb.init(
            project=os.environ.get("WANDB_PROJECT", "lookact"),
            group=folder.parent.name,
            name=folder.name,
            id=_wandb_id(folder),
            dir=folder,
            config=dict(config),
            mode=mode,
            resume="allow",
        )
        self.run.define_metric("*", step_metric="step")

    def log(self, metrics: Mapping[str, float], step: int) -> None:
        self.run.log({"step": step} | {name: float(value) for name, value in metrics.items()})

    def image(self, name: str, image: Image, step: int) -> None:
        self.run.log({"step": step, name: self.wandb.Image(image)})

    def text(self, name: str, text: str, step: int) -> None:
        self.run.log({"step": step, name: self.wandb.Html(f"<pre>{html.escape(text)}</pre>")})

    def histogram(self, name: str, values: NDArray[np.floating[Any]], step: int) -> None:
        self.run.log({"step": step, name: self.wandb.Histogram(values)})

    def close(self) -> None:
        self.run.finish()


def _wandb_id(folder: Path) -> str:
    path = folder / "wandb_id"
    if not path.exists():
        write_text(path, secrets.token_hex(8))
    return path.read_text(encoding="utf-8")


class FanOut:
    """The same calls to each of several trackers, in order; of none, it is silent."""

    def __init__(self, trackers: Sequence[Tracker]) -> None:
        self.trackers = tuple(trackers)

    def log(self, metrics: Mapping[str, float], step: int) -> None:
        for tracker in self.trackers:
            tracker.log(metrics, step)

    def image(self, name: str, image: Image, step: int) -> None:
        for tracker in self.trackers:
            tracker.image(name, image, step)

    def text(self, name: str, text: str, step: int) -> None:
        for tracker in self.trackers:
            tracker.text(name, text, step)

    def histogram(self, name: str, values: NDArray[np.floating[Any]], step: int) -> None:
        for tracker in self.trackers:
            tracker.histogram(name, values, step)

    def close(self) -> None:
        for tracker in self.trackers:
            tracker.close()


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
