"""The files of a run folder by name; its config, recipe and versions: enough to do the run again. Loads no torch."""

from __future__ import annotations

import fcntl
import importlib.metadata
import json
import logging
import os
import platform
import shutil
import struct
import subprocess
import sys
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import yaml

import lookact
from lookact.config.aliases import current_setting
from lookact.data.jsonl import append_row
from lookact.errors import ConfigError
from lookact.training.atomic_io import write_text

logger = logging.getLogger(__name__)

CONFIG = "config.yaml"
HISTORY = "config_history.jsonl"
"""Every change of the config since the run began, setting by setting."""
ORIGIN = "run.json"
"""Which recipe and preset a run, or a checkpoint, is of, and which LookAct wrote it."""
VERSIONS = "versions.json"
METRICS = "metrics.jsonl"
RESULT = "result.json"
LOG = "training.log"
LOCK = ".lock"
LEVELS = ("debug", "info", "warning", "error", "critical")
"""Of the log, in the run's folder and on the console."""
WORTH_KEEPING = ("checkpoint-*", "best", "sft", "bc", "warm_start", "episodes")
"""What makes a folder hold a run; one that failed before its first step may simply be started again."""
OPENED = frozenset((CONFIG, HISTORY, ORIGIN, VERSIONS, METRICS, LOG, LOCK, "tensorboard", "model"))
"""What a run holds before its first step: no work is lost with it."""

UNSET = "(unset)"
PACKAGES = ("torch", "transformers", "peft", "numpy", "gymnasium")
_FLOCK = "hhqqi4x"
"""Linux's struct flock: type, whence, start, length, process."""


def log_level(name: str) -> int:
    """Logging's number for one of LEVELS."""
    if name not in LEVELS:
        raise ConfigError(f"there is no log level {name!r}: give one of {', '.join(LEVELS)}")
    number: int = getattr(logging, name.upper())
    return number


def holds_run(folder: Path) -> bool:
    """Whether a folder holds work that a new run would mix with its own."""
    metrics = folder / METRICS
    kept = any(next(folder.glob(pattern), None) for pattern in WORTH_KEEPING)
    return kept or (metrics.exists() and metrics.stat().st_size > 0)


def refuse_second_run(folder: Path) -> None:
    """Refuse to begin a new run where there is one."""
    if holds_run(folder):
        raise ConfigError(f"{folder} holds a run: go on with --auto-resume or --resume, or give another --name")


def drop_refused(folder: Path) -> None:
    """Remove the folder of a run that was refused before it did anything; one with any work in it stays."""
    if folder.is_dir() and {path.name for path in folder.iterdir()} <= OPENED and not holds_run(folder):
        shutil.rmtree(folder)


def saved_config(path: Path) -> Path | None:
    """The config of a run folder, or of the run that a checkpoint belongs to."""
    return next((place for place in (path / CONFIG, path.parent / CONFIG) if place.is_file()), None)


def read_origin(path: Path) -> dict[str, Any]:
    """The record of a run folder, or of the run that a checkpoint is of; empty where there is none."""
    for place in (path / ORIGIN, path.parent / ORIGIN):
        try:
            record = json.loads(place.read_text(encoding="utf-8"))
        except (OSError, ValueError):
            continue
        if isinstance(record, dict):
            return record
    return {}


def is_locked(folder: Path) -> bool:
    """Whether a live process of this machine trains in a run folder; asking takes no lock."""
    if sys.platform != "linux":
        return False
    try:
        with (folder / LOCK).open("rb") as file:
            asked = struct.pack(_FLOCK, fcntl.F_RDLCK, os.SEEK_SET, 0, 0, 0)
            kind = struct.unpack(_FLOCK, fcntl.fcntl(file, fcntl.F_GETLK, asked))[0]
    except OSError:
        return False
    return bool(kind != fcntl.F_UNLCK)


def write_config(folder: Path, config: Mapping[str, Any], *, step: int = 0) -> None:
    """Save `config.yaml`. A run resumed with other settings logs each change, and `config_history.jsonl` keeps
    what it had before `step`."""
    path = folder / CONFIG
    text = yaml.safe_dump(dict(config), sort_keys=False)
    if path.exists() and path.read_text(encoding="utf-8") != text:
        before, after = saved_leaves(path), leaves(yaml.safe_load(text))
        changed = {name: values for name, values in _changes(before, after).items() if values[0] != values[1]}
        for name, (old, new) in changed.items():
            logger.warning("changed since this run began: %s: %s → %s", name, old, new)
        record = {"step": step, "time": time.strftime("%Y-%m-%dT%H:%M:%S%z"), "changed": changed}
        append_row(folder / HISTORY, record)
    write_text(path, text)


def leaves(config: Any, prefix: str = "") -> dict[str, Any]:
    """Every setting of a nested mapping by its dotted name."""
    if not isinstance(config, Mapping):
        return {prefix.removesuffix("."): config} if prefix else {}
    return {name: value for key in config for name, value in leaves(config[key], f"{prefix}{key}.").items()}


def saved_leaves(saved: Path) -> dict[str, Any]:
    """Every setting of a saved run's config by the dotted name that it has today."""
    recipe = str(read_origin(saved.parent).get("recipe"))
    found = leaves(yaml.safe_load(saved.read_text(encoding="utf-8")))
    renewed = {current_setting(recipe, name): value for name, value in found.items()}
    return {name: value for name, value in renewed.items() if name}


def _changes(before: Mapping[str, Any], after: Mapping[str, Any]) -> dict[str, tuple[Any, Any]]:
    """Old and new value of every setting, `(unset)` where it was not there."""
    return {name: (before.get(name, UNSET), after.get(name, UNSET)) for name in {**before, **after}}


def write_origin(folder: Path, origin: Mapping[str, Any]) -> None:
    """Save `run.json`: which recipe and preset, and which LookAct."""
    write_text(folder / ORIGIN, json.dumps({**origin, "lookact": lookact.__version__}, indent=2) + "\n")


def write_versions(folder: Path) -> None:
    """Save `versions.json`; a change since the run began is logged."""
    versions: dict[str, str | None] = {"python": platform.python_version(), "platform": platform.platform()}
    versions["lookact"] = lookact.__version__
    versions["commit"] = _commit()
    for package in PACKAGES:
        try:
            versions[package] = importlib.metadata.version(package)
        except importlib.metadata.PackageNotFoundError:
            versions[package] = None
    path = folder / VERSIONS
    if path.exists() and json.loads(path.read_text(encoding="utf-8")) != versions:
        logger.warning("this run began with other versions than it goes on with: %s", path.read_text(encoding="utf-8"))
    write_text(path, json.dumps(versions, indent=2) + "\n")


def _commit() -> str | None:
    """The commit the package was checked out at, `-dirty` if edited since; None for an installed package."""
    package = Path(lookact.__file__).parent
    try:
        # an environment may lie inside someone else's checkout: ask for our own file first
        for command in (
            ["ls-files", "--error-unmatch", "__init__.py"],
            ["describe", "--always", "--dirty", "--abbrev=40", "--exclude=*"],
        ):
            call = ["git", "--no-optional-locks", "-C", str(package), *command]
            answer = subprocess.run(call, capture_output=True, text=True, check=True)
    except (OSError, subprocess.CalledProcessError):
        return None
    return answer.stdout.strip()
