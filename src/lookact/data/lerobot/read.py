"""Robot demonstrations as a LeRobotDataset folder, v3 or v2: what it looks like, and how one is read.

`meta/info.json` names the features, parquet files hold states and actions with one row a step, and what each camera saw
is in mp4 files, or in the parquet files as PNG or JPEG. A file holds many episodes in a row; in v2 it holds one, and
the tables below `meta` are JSON Lines. Any folder of these forms is read, also one that was recorded elsewhere.
"""

from __future__ import annotations

import io
import json
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
from numpy.typing import NDArray
from PIL import Image, UnidentifiedImageError

from lookact.data import jsonl
from lookact.data.lerobot.video import VideoReader
from lookact.errors import DataError

VERSION = "v3.0"
INFO, STATS, TASKS = "meta/info.json", "meta/stats.json", "meta/tasks.parquet"
EPISODES_V2, TASKS_V2, STATS_V2 = "meta/episodes.jsonl", "meta/tasks.jsonl", "meta/episodes_stats.jsonl"
EPISODES = "meta/episodes/chunk-{chunk_index:03d}/file-{file_index:03d}.parquet"
DATA = "data/chunk-{chunk_index:03d}/file-{file_index:03d}.parquet"
VIDEO = "videos/{video_key}/chunk-{chunk_index:03d}/file-{file_index:03d}.mp4"
STATE, ACTION, IMAGES = "observation.state", "action", "observation.images."

FIELD = re.compile(r"\{(chunk_index|file_index|video_key|episode_chunk|episode_index)(?::(0?\dd))?\}")
"""What may stand in a path pattern; a width of 10^9 would take a gigabyte."""
MALFORMED = (KeyError, TypeError, ValueError, AttributeError, IndexError, pa.ArrowException)


@dataclass(frozen=True)
class Demonstration:
    """One episode of an expert."""

    task: str
    images: Mapping[str, NDArray[np.uint8]]
    """Camera to (t, h, w, 3): what was seen before each action."""
    states: NDArray[np.float32]
    """(t, s)"""
    actions: NDArray[np.float32]
    """(t, a)"""

    def __len__(self) -> int:
        return len(self.actions)


@dataclass(frozen=True)
class Wanted:
    """What a reader needs of a dataset; None takes whatever is there."""

    cameras: tuple[str, ...] | None = None
    state_size: int | None = None
    action_size: int | None = None
    image_size: tuple[int, int] | None = None
    """(h, w)"""
    renames: Mapping[str, str] = field(default_factory=dict)
    """The dataset's name of a camera to the reader's."""


def read_demonstrations(
    folder: Path, wanted: Wanted | None = None, *, only: int | None = None
) -> Iterator[Demonstration]:
    """Every episode in order, read one at a time, or a single one by its index; what does not fit is a DataError."""
    try:
        yield from _read_demonstrations(folder, wanted, only)
    except MALFORMED as error:
        told = " ".join(f"{type(error).__name__}: {error}".split())[:200]
        raise DataError(f"{folder} is not as LeRobot writes a dataset ({told}): record or copy it again") from error


def _read_demonstrations(folder: Path, wanted: Wanted | None, only: int | None) -> Iterator[Demonstration]:
    info = read_info(folder)
    cameras = check_features(folder, info, wanted or Wanted())
    tasks = _read_tasks(folder, info)
    rows = [row for row in read_rows(folder) if only is None or row["episode_index"] == only]
    readers: dict[str, VideoReader] = {}
    tables: dict[Path, pa.Table] = {}
    for row in rows:
        path = file_of(folder, info["data_path"], **_place(info, row, "data"))
        if path not in tables:
            # one file at a time stays in memory
            tables = {path: _read_table(path)}
        steps = _steps_of(tables[path], row, path)
        yield Demonstration(
            task=_task_of(row, steps, tasks),
            images={
                name: _pictures(steps, key, path)
                if info["features"][key]["dtype"] == "image"
                else _frames_of(folder, info, row, key, readers)
                for name, key in cameras.items()
            },
            states=_matrix(steps, STATE, path),
            actions=_matrix(steps, ACTION, path),
        )


def file_of(folder: Path, pattern: str, **names: str | int) -> Path:
    """The file that a dataset's path pattern names. One of other fields, or that leads out, is a DataError."""
    rest = FIELD.sub("", pattern)
    path = Path(FIELD.sub(lambda found: format(names[found[1]], found[2] or ""), pattern))
    if "{" in rest or "}" in rest or path.is_absolute() or ".." in path.parts:
        raise DataError(f"{folder} has a file pattern {pattern[:80]!r}: write one as LeRobot does, such as {DATA}")
    return folder / path


def read_rows(folder: Path) -> list[dict[str, Any]]:
    """What `meta/episodes` tells of every episode, in order."""
    v2 = folder / EPISODES_V2
    rows = list(jsonl.read_rows(v2)) if v2.is_file() else _read_tables(folder / "meta/episodes")
    return sorted(rows, key=lambda row: int(row["episode_index"]))


def read_info(folder: Path) -> dict[str, Any]:
    """The folder's description of itself."""
    path = folder / INFO
    try:
        info = json.loads(path.read_text(encoding="utf-8"))
    except FileNotFoundError as error:
        raise DataError(f"{folder} is no LeRobot dataset: {INFO} is missing") from error
    except (ValueError, RecursionError) as error:
        raise DataError(f"{path} is not JSON: copy the dataset again") from error
    if not isinstance(info, dict):
        raise DataError(f"{path} holds no JSON object: copy the dataset again")
    missing = {"codebase_version", "fps", "features", "data_path"} - set(info)
    if missing or not str(info["codebase_version"]).startswith(("v3", "v2")):
        found = info.get("codebase_version", f"without {', '.join(sorted(missing))}")
        raise DataError(f"{path} is {found}, not v3 or v2: convert the dataset with LeRobot's own converter first")
    return dict(info)


def read_stats(folder: Path) -> dict[str, dict[str, NDArray[np.float64]]]:
    """Feature to min, max, mean, std and count over the whole dataset, and quantiles where they were written."""
    path = folder / (STATS if (folder / STATS).is_file() else STATS_V2)
    try:
        if path.name == Path(STATS).name:
            return {feature: _arrays(each) for feature, each in json.loads(path.read_text(encoding="utf-8")).items()}
        episodes = [row["stats"] for row in jsonl.read_rows(path)]
        return {feature: _joined([_arrays(each[feature]) for each in episodes]) for feature in episodes[0]}
    except (OSError, RecursionError, *MALFORMED) as error:
        raise DataError(f"{path} can't be read: {' '.join(str(error).split())[:160]}") from error


def _arrays(stats: Mapping[str, Any]) -> dict[str, NDArray[np.float64]]:
    return {name: np.array(value, np.float64) for name, value in stats.items()}


def _joined(parts: Sequence[Mapping[str, NDArray[np.float64]]]) -> dict[str, NDArray[np.float64]]:
    """Statistics of all episodes from those of each, which v2.1 keeps."""
    counts = np.array([part["count"].item() for part in parts])
    share = counts / counts.sum()
    mean = np.tensordot(share, np.stack([part["mean"] for part in parts]), 1)
    squares = np.stack([part["std"] ** 2 + part["mean"] ** 2 for part in parts])
    return {
        "min": np.min([part["min"] for part in parts], axis=0),
        "max": np.max([part["max"] for part in parts], axis=0),
        "mean": mean,
        "std": np.sqrt(np.maximum(np.tensordot(share, squares, 1) - mean**2, 0.0)),
        "count": np.array([counts.sum()]),
    }


def check_features(folder: Path, info: Mapping[str, Any], wanted: Wanted) -> dict[str, str]:
    """The video or image feature behind each camera wanted."""
    features = info["features"]
    for name, size in ((STATE, wanted.state_size), (ACTION, wanted.action_size)):
        if name not in features:
            raise DataError(f"{folder} has no {name}, only {', '.join(sorted(features))}: it can't be imitated")
        found = list(features[name]["shape"])
        if size is not None and found != [size]:
            raise DataError(
                f"{folder}: {name} has shape {found}, [{size}] is wanted: it is of another robot or control"
            )
    shown = [key for key, feature in features.items() if feature["dtype"] in ("video", "image")]
    videos = {key.removeprefix(IMAGES): key for key in shown}
    if unknown := [name for name in wanted.renames if name not in videos]:
        raise DataError(f"{folder} has no camera {unknown[0]} to rename, only {', '.join(sorted(videos)) or 'none'}")
    videos = {wanted.renames.get(name, name): key for name, key in videos.items()}
    chosen = tuple(videos) if wanted.cameras is None else wanted.cameras
    if absent := [name for name in chosen if name not in videos]:
        raise DataError(
            f"{folder} has no video of {', '.join(absent)}, only of {', '.join(sorted(videos)) or 'nothing'}: "
            f"rename its cameras"
        )
    for name in chosen:
        shape = [side for side in features[videos[name]]["shape"] if side != 3]
        if wanted.image_size is not None and shape != list(wanted.image_size):
            raise DataError(f"{folder}: frames of {name} are {shape}, {list(wanted.image_size)} are wanted")
    return {name: videos[name] for name in chosen}


def _read_tasks(folder: Path, info: Mapping[str, Any]) -> dict[int, str]:
    if _is_v2(info):
        return {int(row["task_index"]): str(row["task"]) for row in jsonl.read_rows(folder / TASKS_V2)}
    table = _read_table(folder / TASKS)
    # LeRobot writes a pandas index, whose column is named after the writer's mood
    texts = next((field.name for field in table.schema if _is_text(field.type)), None)
    if texts is None or "task_index" not in table.column_names:
        raise DataError(f"{folder / TASKS} has columns {table.column_names}, a text and task_index are needed")
    return dict(zip(table["task_index"].to_pylist(), table[texts].to_pylist()))


def _is_text(kind: pa.DataType) -> bool:
    """pandas 3 writes large strings."""
    return bool(pa.types.is_string(kind) or pa.types.is_large_string(kind))


def _read_tables(folder: Path) -> list[dict[str, Any]]:
    paths = sorted(folder.glob("*/*.parquet"))
    if not paths:
        raise DataError(f"{folder} holds no parquet file: the dataset was copied in part")
    rows: list[dict[str, Any]] = []
    for path in paths:
        table = _read_table(path)
        kept = [name for name in table.column_names if not name.startswith("stats/")]
        rows += table.select(kept).to_pylist()
    return rows


def _read_table(path: Path) -> pa.Table:
    try:
        # as one file, else pyarrow takes "chunk-000" in the path for a partition
        return pq.ParquetFile(path).read()
    except FileNotFoundError as error:
        raise DataError(f"{path} is missing: the dataset was copied in part") from error
    except (pa.ArrowException, OSError) as error:
        told = " ".join(str(error).split())[:160]
        raise DataError(f"{path} is torn or no parquet file: {told}") from error


def _is_v2(info: Mapping[str, Any]) -> bool:
    return str(info["codebase_version"]).startswith("v2")


def _place(info: Mapping[str, Any], row: Mapping[str, Any], kind: str) -> dict[str, int]:
    if _is_v2(info):
        number = int(row["episode_index"])
        return {"episode_chunk": number // max(1, int(info.get("chunks_size", 1000))), "episode_index": number}
    try:
        return {name: int(row[f"{kind}/{name}"]) for name in ("chunk_index", "file_index")}
    except KeyError as error:
        raise DataError(
            f"episode {row.get('episode_index')} does not tell its {error}: meta/episodes is not v3"
        ) from error


def _steps_of(table: pa.Table, row: Mapping[str, Any], path: Path) -> pa.Table:
    steps = table.filter(pc.equal(table["episode_index"], row["episode_index"]))
    if len(steps) != row["length"]:
        raise DataError(
            f"{path} holds {len(steps)} of {row['length']} steps of episode {row['episode_index']}: it is torn"
        )
    return steps


def _task_of(row: Mapping[str, Any], steps: pa.Table, tasks: Mapping[int, str]) -> str:
    number = int(steps["task_index"][0].as_py()) if "task_index" in steps.column_names else -1
    return tasks[number] if number in tasks else str((row.get("tasks") or [""])[0])


def _matrix(steps: pa.Table, column: str, path: Path) -> NDArray[np.float32]:
    if column not in steps.column_names:
        raise DataError(f"{path} has no column {column}, though {INFO} names it")
    return np.asarray(steps[column].to_pylist(), np.float32).reshape(len(steps), -1)


def _frames_of(
    folder: Path, info: Mapping[str, Any], row: Mapping[str, Any], key: str, readers: dict[str, VideoReader]
) -> NDArray[np.uint8]:
    """(t, h, w, 3) of one camera in one episode."""
    path = file_of(folder, info["video_path"], video_key=key, **_place(info, row, f"videos/{key}"))
    if key not in readers or readers[key].path != path:
        readers[key] = VideoReader(path)
    start = 0 if _is_v2(info) else round(float(row[f"videos/{key}/from_timestamp"]) * info["fps"])
    return readers[key].read(start, int(row["length"]))


def _pictures(steps: pa.Table, key: str, path: Path) -> NDArray[np.uint8]:
    """(t, h, w, 3) of an image feature: PNG or JPEG files in a parquet column."""
    if key not in steps.column_names:
        raise DataError(f"{path} has no column {key}, though {INFO} names it")
    frames = []
    for number, cell in enumerate(steps[key].to_pylist()):
        data = cell.get("bytes") if isinstance(cell, dict) else cell
        if not isinstance(data, bytes):
            raise DataError(f"{path}: {key} of step {number} holds no file: write images into the parquet file")
        try:
            with Image.open(io.BytesIO(data), formats=("PNG", "JPEG")) as image:
                frames.append(np.asarray(image.convert("RGB")))
        except (OSError, UnidentifiedImageError, Image.DecompressionBombError, SyntaxError) as error:
            raise DataError(f"{path}: {key} of step {number} is no PNG or JPEG: {type(error).__name__}") from error
    return np.stack(frames)
