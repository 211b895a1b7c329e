"""The whole viewer with its data in one file, to be sent to someone who has neither the folder nor a network."""

from __future__ import annotations

import base64
import json
import time
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from itertools import zip_longest
from pathlib import Path
from typing import Any

from lookact.data.jsonl import read_objects
from lookact.errors import DataError
from lookact.training.progress import progress
from lookact.viewer.episodes import episode_detail, list_episodes, map_picture, picture
from lookact.viewer.folder import Found, find, inside, loose_stores
from lookact.viewer.judge_pairs import list_pairs
from lookact.viewer.metrics import MAX_METRICS, as_columns
from lookact.viewer.page import one_page
from lookact.viewer.runs import MEDIA_TYPES, list_runs, media_file, run_detail, run_log

LINES = 4000
"""Lines of one file of numbers; of more, every second or third is kept."""
DIGITS = 6
MAX_MISSES = 3
"""Episodes that did not fit, after which no more are tried: the file is full."""
NO_EPISODES = {"text": "No episodes were kept of this run.", "command": ""}


@dataclass
class Archive:
    """What goes into the file, how many bytes are left, and what no longer fitted."""

    left: int
    data: dict[str, Any] = field(default_factory=dict)
    dropped: Counter[str] = field(default_factory=Counter)

    def add(self, kind: str, key: str, value: Any, *, needed: bool = False) -> bool:
        """Put a record in; one that is not needed only where it fits."""
        size = len(value) if isinstance(value, str) else len(json.dumps(value))
        if size > self.left and not needed:
            return False
        self.left -= size
        self.data.setdefault(kind, {})[key] = value
        return True


def export(root: Path, *, most_bytes: int, tokenizer: Path | None = None) -> tuple[str, list[str]]:
    """The page as text, and what was left out of it, in words. Raises DataError where there is nothing to show."""
    found = find(root)
    if not found.runs and not found.stores:
        raise DataError(
            f"{root.name} holds no run and no episodes: name a folder that lookact train, eval or collect wrote"
        )
    archive = Archive(most_bytes)
    rows = list_runs(root, found)
    runs: dict[str, Any] = {"folder": root.name, "runs": rows}
    _add_runs(archive, root, [row["place"] for row in rows if row["status"] != "unreadable"], found)
    _add_episodes(archive, root, found, tokenizer)
    _add_media(archive, root)
    left_out = [f"{count} {kind}{'' if count == 1 else 's'}" for kind, count in archive.dropped.items()]
    held = archive.data.get("episodes", {})
    runs["stores"] = [{"place": store, "episodes": len(held[store])} for store in loose_stores(found)]
    for detail in archive.data.get("run", {}).values():
        detail["stores"] = [{**store, "episodes": len(held[store["place"]])} for store in detail["stores"]]
    data = {**archive.data, "runs": runs, "left_out": left_out, "made": time.time()}
    return one_page(json.dumps(data, separators=(",", ":"))), left_out


def _add_runs(archive: Archive, root: Path, places: Sequence[str], found: Found) -> None:
    for place in places:
        detail = {**run_detail(root, place, found), "advice": NO_EPISODES}
        archive.add("run", place, detail, needed=True)
        for file in detail["files"]:
            columns, dropped = downsampled_metrics(inside(root, f"{place}/{file}"))
            archive.dropped.update({"line": dropped} if dropped else {})
            answer = {"version": "", "offset": 0, "restart": True, "more": False, "skipped": 0, "columns": columns}
            archive.add("metrics", f"{place}|{file}", answer, needed=True)
        archive.add("log", place, run_log(root, place))
        if detail["judged"]:
            archive.add("pairs", place, list_pairs(root, place))


def _add_episodes(archive: Archive, root: Path, found: Found, tokenizer: Path | None) -> None:
    """Episodes of all folders in turn, each with its pictures or not at all, until the file is full."""
    listed = {store: list_episodes(root, store) for store in found.stores}
    taken: dict[str, list[Any]] = {store: [] for store in listed}
    archive.data["episodes"] = taken
    together = zip_longest(*([(store, row) for row in rows] for store, rows in listed.items()))
    waiting = [item for items in together for item in items if item is not None]
    misses = 0
    with progress(len(waiting), "putting episodes in") as bar:
        for store, row in waiting:
            if misses == MAX_MISSES:
                break
            if _add_episode(archive, root, store, row, tokenizer):
                taken[store].append(row)
            else:
                misses += 1
            bar.advance()
    if left := len(waiting) - sum(map(len, taken.values())):
        archive.dropped["episode"] = left


def _add_episode(archive: Archive, root: Path, store: str, row: Mapping[str, Any], tokenizer: Path | None) -> bool:
    id, detail = row["id"], episode_detail(root, store, row["id"], tokenizer=tokenizer)
    seen = [*detail["turns"], *([detail["last"]] if detail["last"] else [])]
    pictures = {
        f"{store}|{id}|{number}|{camera['name']}": data_uri(
            picture(root, store, id, number, camera["name"]), "image/png"
        )
        for number, turn in enumerate(seen)
        for camera in turn["cameras"]
    }
    if detail["map"]:
        pictures[f"{store}|{id}|map"] = data_uri(map_picture(root, store, id), "image/png")
    if sum(map(len, pictures.values())) + len(json.dumps([detail, row])) > archive.left:
        return False
    archive.left -= len(json.dumps(row))
    archive.add("episode", f"{store}|{id}", detail)
    for key, value in pictures.items():
        archive.add("picture", key, value, needed=True)
    return True


def _add_media(archive: Archive, root: Path) -> None:
    """Texts, pictures and videos, the small ones first, so that as many as possible find room."""
    media = [row for detail in archive.data.get("run", {}).values() for row in detail["media"]]
    for row in sorted(media, key=lambda row: row["bytes"]):
        path, kind = media_file(root, row["place"]), MEDIA_TYPES[Path(row["place"]).suffix.lower()]
        fits = row["bytes"] * 4 // 3 < archive.left
        if not (fits and archive.add("media", row["place"], data_uri(path.read_bytes(), kind))):
            archive.dropped[row["kind"]] += 1
    held = archive.data.get("media", {})
    for detail in archive.data.get("run", {}).values():
        detail["media"] = [row for row in detail["media"] if row["place"] in held]


def downsampled_metrics(path: Path) -> tuple[dict[str, list[float | None]], int]:
    """A file of numbers as columns with few digits, and how many of its lines were passed over."""
    columns, _ = as_columns(read_objects(path, most=MAX_METRICS)[0])
    count = len(columns["step"])
    stride = max(1, -(-count // LINES))
    # the last line is what a run came to
    kept = sorted({*range(0, count, stride), *([count - 1] if count else [])})
    return {key: [_rounded(values[line]) for line in kept] for key, values in columns.items()}, count - len(kept)


def data_uri(data: bytes, kind: str) -> str:
    return f"data:{kind};base64,{base64.b64encode(data).decode()}"


def _rounded(value: float | None) -> float | None:
    return value if value is None or isinstance(value, int) else float(f"{value:.{DIGITS}g}")
