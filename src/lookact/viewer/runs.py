"""A run folder as records: one line of the list, and all that its page shows besides curves."""

from __future__ import annotations

import hashlib
import json
import re
from pathlib import Path
from typing import Any

from lookact.training.run_files import CONFIG, LOG, METRICS, RESULT, VERSIONS, read_origin
from lookact.viewer.advice import advise
from lookact.viewer.episodes import list_stores
from lookact.viewer.gallery import list_media
from lookact.viewer.metrics import metric_files, summary
from lookact.viewer.places import Found, inside, stores_of
from lookact.viewer.plain import read_json, read_tail, read_yaml
from lookact.viewer.status import run_status

LOG_BYTES = 96 << 10
_PRESET = re.compile(r"([a-z]+)-seed\d+$")
"""A run that was given no name is called by its preset and seed."""


def list_runs(root: Path, found: Found) -> list[dict[str, Any]]:
    """Every run's line, the one written last first."""
    return sorted((run_row(root, place) for place in found.runs), key=lambda row: -row["changed"])


def run_row(root: Path, place: str) -> dict[str, Any]:
    """One run in a line; runs of one `group` are seeds of one config."""
    folder = inside(root, place)
    config = read_yaml(folder / CONFIG)
    config = config if isinstance(config, dict) else {}
    status, reason = run_status(folder)
    origin = read_origin(folder)
    recipe, named = origin.get("recipe") or folder.parent.name, _PRESET.match(folder.name)
    return {
        "place": place,
        "recipe": recipe,
        "name": folder.name,
        # runs from before the record was kept are called by their preset
        "preset": origin.get("preset") if origin else named[1] if named else None,
        "seed": config.get("seed"),
        "status": status,
        "reason": reason,
        "changed": changed(folder),
        "group": group_of(recipe, config) if config else place,
        **summary(folder),
    }


def run_detail(root: Path, place: str, found: Found) -> dict[str, Any]:
    """A run's settings, result, versions, pictures, files of numbers and folders of episodes."""
    folder, row = inside(root, place), run_row(root, place)
    return {
        **row,
        "config": read_yaml(folder / CONFIG),
        "result": read_json(folder / RESULT),
        "versions": read_json(folder / VERSIONS),
        "files": metric_files(folder),
        "media": list_media(root, place),
        "stores": list_stores(root, stores_of(place, found)),
        "advice": advise(root, place, row["recipe"], row["status"]),
    }


def run_log(root: Path, place: str) -> dict[str, str]:
    """The last lines of a run's log."""
    return {"text": read_tail(inside(root, place) / LOG, LOG_BYTES)}


def changed(folder: Path) -> float:
    """When a run last wrote, in seconds since 1970."""
    paths = (folder / name for name in (METRICS, LOG, RESULT, CONFIG))
    return max((path.stat().st_mtime for path in paths if path.exists()), default=folder.stat().st_mtime)


def group_of(recipe: str, config: dict[str, Any]) -> str:
    """The same for configs that differ in nothing but the seed."""
    rest = {name: value for name, value in config.items() if name != "seed"}
    return hashlib.sha256(json.dumps([recipe, rest], sort_keys=True).encode()).hexdigest()[:12]
