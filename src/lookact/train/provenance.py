"""What a run was asked to do, and with which code: enough to do it again."""

from __future__ import annotations

import importlib.metadata
import json
import logging
import platform
import subprocess
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import yaml

import lookact
from lookact.train.durable import write_text
from lookact.train.run_files import CONFIG, VERSIONS

logger = logging.getLogger(__name__)

PACKAGES = ("torch", "transformers", "peft", "numpy", "gymnasium")


def write_config(folder: Path, config: Mapping[str, Any]) -> None:
    """Save `config.yaml`; a run that goes on with another config than it began with is told so."""
    path = folder / CONFIG
    text = yaml.safe_dump(dict(config), sort_keys=False)
    if path.exists() and path.read_text(encoding="utf-8") != text:
        before, after = yaml.safe_load(path.read_text(encoding="utf-8")), yaml.safe_load(text)
        changed = sorted(key for key in {*before, *after} if before.get(key) != after.get(key))
        logger.warning("the config has changed since this run began, in %s", ", ".join(changed))
    write_text(path, text)


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
