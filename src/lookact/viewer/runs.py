"""A run folder as records: its line in the list, its status, and all that its page shows besides curves."""

from __future__ import annotations

import hashlib
import json
import re
import shlex
import time
from pathlib import Path
from typing import Any

from lookact.training.run_files import CONFIG, LOCK, LOG, METRICS, ORIGIN, RESULT, VERSIONS, is_locked
from lookact.viewer.episodes import list_stores
from lookact.viewer.folder import (
    Found,
    NotFound,
    check_file,
    inside,
    is_file,
    is_run,
    is_text,
    read_json,
    read_tail,
    read_yaml,
    stores_of,
)
from lookact.viewer.judge_pairs import find_diary
from lookact.viewer.metrics import STARTS, metric_files, summary

Row = dict[str, Any]
LOG_BYTES = 96 << 10
TAIL_BYTES = 64 << 10
RECENT = 60.0
"""A run that wrote within so many seconds counts as alive, where its lock cannot be seen."""
ENDED = "the run ended with an error"
REMEDY = "train continues where it was with --auto-resume"
BC_RECIPES = ("nav-rloo", "vqa-ppo", "vla-ppo")
"""Recipes whose supervised start is a policy already."""
MEDIA_TYPES = {
    **{".png": "image/png", ".jpg": "image/jpeg", ".jpeg": "image/jpeg", ".webp": "image/webp", ".gif": "image/gif"},
    **{".mp4": "video/mp4", ".webm": "video/webm", ".txt": "text/plain; charset=utf-8"},
}
"""What is served, and as what; everything else in a run folder stays there."""
MEDIA_FOLDERS = ("plots", "samples", "videos", "eval", "episodes", "judge", "warm_start", "sft", "bc")
"""Folders of a run that hold media; its own folder counts too."""
WEIGHT_FOLDERS = re.compile(r"\..*|checkpoint-.*|best|model|tokenizer")
"""Folders of weights and tokenizers, whose texts are not for people."""
KINDS = ("picture", "video", "text")
MAX_MEDIA = 600
_PRESET = re.compile(r"([a-z]+)-seed\d+$")
"""A run that was given no name is called by its preset and seed."""
_STAMP = re.compile(r"^\d{4}-\d\d-\d\d \d\d:\d\d:\d\d,\d+ \w+ ", re.MULTILINE)


def list_runs(root: Path, found: Found) -> list[Row]:
    """Every run's line, the one written last first."""
    return sorted((run_line(root, place) for place in found.runs), key=lambda row: -row["changed"])


def run_line(root: Path, place: str) -> Row:
    """One run in a line; a folder that cannot be shown costs its own line, not the list."""
    try:
        if not is_text(place):
            raise ValueError("the folder's name is not UTF-8: rename it")
        return run_row(root, place)
    except Exception as error:
        # whatever others left in a folder, the runs beside it are shown
        shown = place.encode("utf-8", errors="replace").decode()
        empty = dict.fromkeys(("preset", "seed", "headline")) | {"steps": 0, "changed": 0.0, "group": shown}
        reason = " ".join(str(error).split())[:200] or type(error).__name__
        parent, _, name = shown.rpartition("/")
        return {"place": shown, "recipe": parent, "name": name, "status": "unreadable", "reason": reason, **empty}


def run_row(root: Path, place: str) -> Row:
    """One run in a line; runs of one `group` are seeds of one config."""
    folder = inside(root, place)
    config = read_yaml(folder / CONFIG)
    config = config if isinstance(config, dict) else {}
    status, reason = run_status(folder)
    origin = read_json(folder / ORIGIN)
    origin = origin if isinstance(origin, dict) else {}
    recipe, named = str(origin.get("recipe") or folder.parent.name), _PRESET.match(folder.name)
    return {
        "place": place,
        "recipe": recipe,
        "name": folder.name,
        # runs from before the record was kept are called by their preset
        "preset": origin.get("preset") if origin else named[1] if named else None,
        "seed": config.get("seed"),
        "status": status,
        "reason": reason,
        "changed": max(map(changed, (folder / name for name in (METRICS, LOG, RESULT, CONFIG)))) or changed(folder),
        "group": group_of(recipe, config) if config else place,
        **summary(folder),
    }


def run_detail(root: Path, place: str, found: Found) -> Row:
    """A run's settings, result, versions, media, files of metrics and folders of episodes."""
    folder, row = inside(root, place), run_row(root, place)
    return {
        **row,
        "config": read_yaml(folder / CONFIG),
        "result": read_json(folder / RESULT),
        "versions": read_json(folder / VERSIONS),
        "files": metric_files(folder),
        "media": list_media(root, place),
        "judged": find_diary(root, place) is not None,
        "stores": list_stores(root, stores_of(place, found)),
        "advice": advise(root, place, row["recipe"], row["status"]),
    }


def run_log(root: Path, place: str) -> dict[str, str]:
    """The last lines of a run's log."""
    return {"text": read_tail(inside(root, place) / LOG, LOG_BYTES)}


def group_of(recipe: str, config: Row) -> str:
    """The same for configs that differ in nothing but the seed."""
    rest = {name: value for name, value in config.items() if name != "seed"}
    return hashlib.sha256(json.dumps([recipe, rest], sort_keys=True).encode()).hexdigest()[:12]


def run_status(folder: Path, *, now: float | None = None) -> tuple[str, str]:
    """One of running, finished, failed, interrupted and stopped, and the reason where one is known."""
    if is_file(folder / LOCK) and is_locked(folder):
        return "running", ""
    log, result = changed(folder / LOG), changed(folder / RESULT)
    reason = last_error(read_tail(folder / LOG, TAIL_BYTES))
    # what failed after an earlier end wrote to its log since
    if reason is None or (result and result >= log):
        if result:
            return "finished", ""
        wrote = max(log, changed(folder / METRICS))
        alive = (time.time() if now is None else now) - wrote < RECENT
        return ("running", "") if alive else ("stopped", f"it left no word of its end; {REMEDY}")
    for kind, by in (("KeyboardInterrupt", "Ctrl-C"), ("lookact.errors.Terminated", "SIGTERM")):
        if reason.startswith(kind):
            return "interrupted", f"by {by}; {REMEDY}"
    return "failed", reason


def last_error(log: str) -> str | None:
    """The line in which a log's last traceback ends, unless the run has written more since."""
    _, marked, after = log.rpartition(ENDED)
    if not marked or _STAMP.search(after):
        return None
    lines = [line for line in after.splitlines() if line.strip()]
    return lines[-1].strip() if lines else ENDED


def changed(path: Path) -> float:
    """When a file or folder was last written, in seconds since 1970; 0 where it is missing or a link."""
    try:
        return path.stat().st_mtime if path.is_dir() else check_file(path).st_mtime
    except OSError:
        return 0.0


def list_media(root: Path, place: str) -> list[Row]:
    """The newest pictures, videos and texts of a run, by folder and kind, then newest first."""
    folder = inside(root, place)
    roots = [folder / name for name in MEDIA_FOLDERS if (folder / name).is_dir() and not (folder / name).is_symlink()]
    paths = [*folder.glob("*"), *(path for base in roots for path in base.rglob("*"))]
    files = [path for path in paths if path.suffix.lower() in MEDIA_TYPES and is_media(folder, path)]
    newest = sorted(files, key=lambda path: (-path.stat().st_mtime, path.name))[:MAX_MEDIA]
    rows = [media_row(root, folder, path) for path in newest]
    return sorted(rows, key=lambda row: (*folder_order(row["folder"]), KINDS.index(row["kind"])))


def media_row(root: Path, folder: Path, path: Path) -> Row:
    """Where a file lies, of which kind it is, and how large."""
    return {
        "place": path.relative_to(root).as_posix(),
        "folder": path.parent.relative_to(folder).as_posix(),
        "name": path.name,
        "kind": {"image": "picture", "video": "video"}.get(MEDIA_TYPES[path.suffix.lower()].split("/")[0], "text"),
        "bytes": path.stat().st_size,
    }


def is_media(folder: Path, path: Path) -> bool:
    """Whether a file below a run's folder is reached without a link, by a name in Unicode, and not beside weights."""
    parts = path.relative_to(folder).parts
    above = [folder.joinpath(*parts[:count]) for count in range(1, len(parts))]
    weights = any(WEIGHT_FOLDERS.fullmatch(part) for part in parts[:-1])
    return is_text(str(path)) and not weights and not any(map(Path.is_symlink, above)) and is_file(path)


def media_file(root: Path, place: str) -> Path:
    """A picture, video or text of some run's media folders. Raises NotFound for any other file."""
    path = inside(root, place)
    for folder in path.parents:
        if not folder.is_relative_to(root):
            break
        first = path.relative_to(folder).parts[0]
        if (first in MEDIA_FOLDERS or first == path.name) and path.suffix.lower() in MEDIA_TYPES:
            names = {name for name in (METRICS, CONFIG, LOG) if is_file(folder / name)}
            if is_run(names) and is_media(folder, path):
                return path
    raise NotFound(place)


def folder_order(folder: str) -> tuple[int, str]:
    """Where a folder stands among others."""
    first = folder.split("/")[0]
    return (MEDIA_FOLDERS.index(first) if first in MEDIA_FOLDERS else -1, folder)


def advise(root: Path, place: str, recipe: str, status: str) -> dict[str, str]:
    """What to do about a run that kept no episodes: a sentence and a command; no command while it still runs."""
    if status == "running":
        return {"text": "No episodes yet: a run keeps a few of each evaluation.", "command": ""}
    folder = inside(root, place)
    checkpoint = find_checkpoint(folder, recipe)
    if checkpoint is None:
        text = "This run kept no episodes and left no checkpoint. A random policy's can be looked at:"
        origin = read_json(folder / ORIGIN)
        source = str(origin.get("source") or recipe) if isinstance(origin, dict) else recipe
        return {"text": text, "command": f"lookact eval {shlex.quote(source)} --preset debug --dummy --episodes 4"}
    here = Path.cwd()
    shown = folder.relative_to(here) if folder.is_relative_to(here) else folder
    paths = f"--checkpoint {shlex.quote(f'{shown}/{checkpoint}')} --episodes 8 --out {shlex.quote(f'{shown}/eval')}"
    return {
        "text": "This run kept no episodes. Its policy makes some in",
        "command": f"lookact eval {shlex.quote(recipe)} {paths}",
    }


def find_checkpoint(folder: Path, recipe: str) -> str | None:
    """The name of the folder of a run's weights that is most worth looking at."""
    numbered = sorted(folder.glob("checkpoint-*"), key=lambda path: (len(path.name), path.name), reverse=True)
    start = [folder / name for name in STARTS] if recipe in BC_RECIPES else []
    for path in [folder / "best", *numbered, *start]:
        if path.is_dir() and next(path.rglob("*.safetensors"), None) is not None:
            return path.name
    return None
