"""Writes demonstrations as a LeRobotDataset-v3 folder, which is there as a whole or not at all."""

from __future__ import annotations

import json
import shutil
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from numpy.typing import NDArray

from lookact.data.lerobot.action_space import ActionSpace, write_action_space
from lookact.data.lerobot.read import (
    ACTION,
    DATA,
    EPISODES,
    IMAGES,
    INFO,
    STATE,
    STATS,
    TASKS,
    VERSION,
    VIDEO,
    Demonstration,
)
from lookact.data.lerobot.video import CODEC, FAITHFUL, VideoWriter
from lookact.errors import DataError

FIRST = {"chunk_index": 0, "file_index": 0}
QUANTILES = (0.01, 0.1, 0.5, 0.9, 0.99)
"""As LeRobot keeps them, under q01 to q99."""
COUNTERS = ("frame_index", "episode_index", "index", "task_index")


def write_demonstrations(
    folder: Path, demonstrations: Iterable[Demonstration], *, fps: int, robot: str, space: ActionSpace | None = None
) -> int:
    """Write them all, one after the other, and return how many; they may be made while they are written.

    `space` says what the actions mean.
    """
    if folder.exists():
        raise DataError(f"{folder} is already there: choose another folder, or delete it")
    draft = folder.with_name(f".tmp-{folder.name}")
    shutil.rmtree(draft, ignore_errors=True)
    writer = _Draft(draft, fps, robot)
    try:
        for demonstration in demonstrations:
            writer.add(demonstration)
    finally:
        writer.close_videos()
    writer.finish()
    if space is not None:
        write_action_space(draft, space)
    draft.replace(folder)
    return len(writer.episodes)


class _Draft:
    """A dataset in the making."""

    def __init__(self, folder: Path, fps: int, robot: str) -> None:
        self.folder, self.fps, self.robot = folder, fps, robot
        self.episodes: list[dict[str, Any]] = []
        self.steps: list[dict[str, NDArray[Any]]] = []
        self.tasks: dict[str, int] = {}
        self.videos: dict[str, VideoWriter] = {}
        self.stats: dict[str, _Running] = {}
        self.shapes: dict[str, tuple[int, ...]] = {}
        self.total = 0

    def add(self, demo: Demonstration) -> None:
        """Videos go to the disk at once, numbers stay until the end."""
        self._check(demo)
        start, length, episode = self.total, len(demo), len(self.episodes)
        task = self.tasks.setdefault(demo.task, len(self.tasks))
        for key, frames in _videos(demo).items():
            self._film(key, frames)
        columns: dict[str, NDArray[Any]] = {
            STATE: demo.states.astype(np.float32),
            ACTION: demo.actions.astype(np.float32),
            "timestamp": (np.arange(length) / self.fps).astype(np.float32),
            "frame_index": np.arange(length),
            "episode_index": np.full(length, episode),
            "index": np.arange(start, start + length),
            "task_index": np.full(length, task),
        }
        for name, values in columns.items():
            self.stats.setdefault(name, _Running()).add(values.reshape(length, -1).astype(np.float64))
        self.steps.append(columns)
        self.episodes.append(self._episode_row(demo, start, length))
        self.total += length

    def close_videos(self) -> None:
        for video in self.videos.values():
            video.close()

    def finish(self) -> None:
        """Numbers, tasks, statistics, and last the description that makes it a dataset."""
        if not self.episodes:
            raise DataError("there is no demonstration to write: did the expert fail every time?")
        joined = {name: np.concatenate([step[name] for step in self.steps]) for name in self.steps[0]}
        table = pa.table({name: _column(values) for name, values in joined.items()})
        _write_table(self.folder / DATA.format(**FIRST), table)
        _write_table(self.folder / EPISODES.format(**FIRST), pa.Table.from_pylist(self.episodes))
        _write_table(self.folder / TASKS, _task_table(self.tasks))
        _write_json(self.folder / STATS, self._stats(joined))
        _write_json(self.folder / INFO, self._info())

    def _check(self, demo: Demonstration) -> None:
        arrays: dict[str, NDArray[Any]] = {STATE: demo.states, ACTION: demo.actions, **_videos(demo)}
        shapes = {name: array.shape[1:] for name, array in arrays.items()}
        if len(demo) == 0 or {len(array) for array in arrays.values()} != {len(demo)}:
            raise DataError(
                f"a demonstration has {[len(array) for array in arrays.values()]} steps: give one of each a step"
            )
        self.shapes = self.shapes or shapes
        if shapes != self.shapes:
            raise DataError(
                f"a demonstration has shapes {shapes}, the first had {self.shapes}: keep one robot and camera"
            )

    def _film(self, key: str, frames: NDArray[np.uint8]) -> None:
        path = self.folder / VIDEO.format(video_key=key, **FIRST)
        video = self.videos.setdefault(key, VideoWriter(path, fps=self.fps, pixels=FAITHFUL))
        for frame in frames:
            video.add(frame)
        # LeRobot keeps picture statistics a channel, in 0..1
        self.stats.setdefault(key, _Running(colour=True)).add(frames.reshape(-1, 3) / 255.0, count=len(frames))

    def _episode_row(self, demo: Demonstration, start: int, length: int) -> dict[str, Any]:
        row: dict[str, Any] = {"episode_index": len(self.episodes), "tasks": [demo.task], "length": length}
        row |= {"dataset_from_index": start, "dataset_to_index": start + length}
        for kind in ("data", "meta/episodes", *(f"videos/{key}" for key in _videos(demo))):
            row |= {f"{kind}/{name}": value for name, value in FIRST.items()}
        for key in _videos(demo):
            row[f"videos/{key}/from_timestamp"] = start / self.fps
            row[f"videos/{key}/to_timestamp"] = (start + length) / self.fps
        return row

    def _stats(self, columns: Mapping[str, NDArray[Any]]) -> dict[str, Any]:
        """With exact quantiles of numbers, and of colours those of their 256 levels."""
        found = {}
        for name, each in self.stats.items():
            quantiles = each.levels() if each.colour else np.quantile(columns[name], QUANTILES, axis=0)
            told = quantiles.reshape(len(QUANTILES), *((-1, 1, 1) if each.colour else (-1,))).tolist()
            found[name] = each.summary() | {f"q{round(100 * q):02d}": one for q, one in zip(QUANTILES, told)}
        return found

    def _info(self) -> dict[str, Any]:
        return {
            "codebase_version": VERSION,
            "robot_type": self.robot,
            "total_episodes": len(self.episodes),
            "total_frames": self.total,
            "total_tasks": len(self.tasks),
            "chunks_size": 1000,
            "data_files_size_in_mb": 100,
            "video_files_size_in_mb": 200,
            "fps": self.fps,
            "splits": {"train": f"0:{len(self.episodes)}"},
            "data_path": DATA,
            "video_path": VIDEO if self.videos else None,
            "features": self._features(),
        }

    def _features(self) -> dict[str, Any]:
        features: dict[str, Any] = {
            name: {"dtype": "float32", "shape": list(self.shapes[name]), "names": None} for name in (STATE, ACTION)
        }
        for key in self.videos:
            height, width, _ = self.shapes[key]
            features[key] = {
                "dtype": "video",
                "shape": [height, width, 3],
                "names": ["height", "width", "channels"],
                "info": {
                    "video.height": height,
                    "video.width": width,
                    "video.channels": 3,
                    "video.fps": self.fps,
                    "video.codec": CODEC,
                    "video.pix_fmt": FAITHFUL,
                    "video.is_depth_map": False,
                    "has_audio": False,
                },
            }
        features["timestamp"] = {"dtype": "float32", "shape": [1], "names": None}
        return features | {name: {"dtype": "int64", "shape": [1], "names": None} for name in COUNTERS}


class _Running:
    """Minimum, maximum, mean and spread of numbers that come in runs."""

    def __init__(self, *, colour: bool = False) -> None:
        self.colour, self.count, self.rows = colour, 0, 0
        self.histogram = np.zeros((3, 256), np.int64)
        """Of colours."""
        self.low: Any = np.inf
        self.high: Any = -np.inf
        self.sum: Any = 0.0
        self.squares: Any = 0.0

    def add(self, values: NDArray[np.float64], *, count: int | None = None) -> None:
        """(n, d) numbers, which stand for `count` steps."""
        self.count += len(values) if count is None else count
        self.rows += len(values)
        self.low, self.high = np.minimum(self.low, values.min(0)), np.maximum(self.high, values.max(0))
        self.sum, self.squares = self.sum + values.sum(0), self.squares + (values**2).sum(0)
        if self.colour:
            levels = np.rint(255 * values).astype(np.int64)
            self.histogram += np.stack([np.bincount(channel, minlength=256) for channel in levels.T])

    def levels(self) -> NDArray[np.float64]:
        """Quantiles (q, 3) of colours in 0..1: the first level that so many do not exceed."""
        shares = self.histogram.cumsum(axis=1) / self.rows
        return np.array([[np.searchsorted(channel, q) for channel in shares] for q in QUANTILES]) / 255

    def summary(self) -> dict[str, Any]:
        mean = self.sum / self.rows
        spread = np.sqrt(np.maximum(self.squares / self.rows - mean**2, 0.0))
        found = {"min": self.low, "max": self.high, "mean": mean, "std": spread}
        shaped = {name: value.reshape(-1, 1, 1) if self.colour else value for name, value in found.items()}
        return {name: value.tolist() for name, value in shaped.items()} | {"count": [self.count]}


def _videos(demo: Demonstration) -> dict[str, NDArray[np.uint8]]:
    return {f"{IMAGES}{camera}": frames for camera, frames in demo.images.items()}


def _column(values: NDArray[Any]) -> pa.Array:
    if values.ndim == 1:
        return pa.array(values)
    return pa.FixedSizeListArray.from_arrays(pa.array(values.ravel()), values.shape[1])


def _task_table(tasks: Mapping[str, int]) -> pa.Table:
    """Texts are the index of a pandas table: that is how LeRobot looks them up."""
    table = pa.table({"task_index": pa.array(list(tasks.values()), pa.int64()), "task": pa.array(list(tasks))})
    columns = [
        {
            "name": "task_index",
            "field_name": "task_index",
            "pandas_type": "int64",
            "numpy_type": "int64",
            "metadata": None,
        },
        {"name": "task", "field_name": "task", "pandas_type": "unicode", "numpy_type": "object", "metadata": None},
    ]
    about = {"index_columns": ["task"], "column_indexes": [], "columns": columns, "pandas_version": "2.0.0"}
    return table.replace_schema_metadata({"pandas": json.dumps(about)})


def _write_table(path: Path, table: pa.Table) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    pq.write_table(table, path)


def _write_json(path: Path, content: Mapping[str, Any]) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps(content, indent=4), encoding="utf-8")
