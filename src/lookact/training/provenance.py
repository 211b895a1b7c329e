"""What a run was asked to do, and with which code: enough to do it again."""

from __future__ import annotations

import importlib.metadata
import json
import logging
import platform
import subprocess
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import yaml

import lookact
from lookact.config.aliases import current_setting
from lookact.training.atomic_io import write_text
from lookact.training.run_files import CONFIG, HISTORY, ORIGIN, VERSIONS, read_origin

logger = logging.getLogger(__name__)

UNSET = "(unset)"
PACKAGES = ("torch", "transformers", "peft", "numpy", "gymnasium")


def write_config(folder: Path, config: Mapping[str, Any], *, step: int = 0) -> None:
    """Save `config.yaml`. A run that goes on with other settings is told each of them, and `config_history.jsonl` keeps
    what it had before `step`."""
    path = folder / CONFIG
    text = yaml.safe_dump(dict(config), sort_keys=False)
    if path.exists() and path.read_text(encoding="utf-8") != text:
        before, after = saved_leaves(path), leaves(yaml.safe_load(text))
        changed = {name: values for name, values in _changes(before, after).items() if values[0] != values[1]}
        for name, (old, new) in changed.items():
            logger.warning("changed since this run began: %s: %s → %s", name, old, new)
        record = {"step": step, "time": time.strftime("%Y-%m-%dT%H:%M:%S%z"), "changed": changed}
        with (folder / HISTORY).open("a", encoding="utf-8") as file:
            file.write(json.dumps(record) + "\n")
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
    """Save `versions.json`; a change since the run began is told."""
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
