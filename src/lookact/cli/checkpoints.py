"""Checkpoints and run folders that a command line names: whose they are, and what was asked of them."""

from __future__ import annotations

from pathlib import Path

import yaml

from lookact.cli.parser import Arguments
from lookact.cli.recipes import RECIPES, load_settings
from lookact.config import settings
from lookact.config.aliases import current_setting
from lookact.errors import ConfigError, DataError
from lookact.training.run_files import METRICS, read_origin, saved_config


def existing(path: Path | None, what: str) -> Path | None:
    """The path, if there is something there."""
    if path is not None and not path.exists():
        raise DataError(f"{what} {path} does not exist: check the path")
    return path


def named_checkpoint(arguments: Arguments, command: str) -> Path | None:
    """The checkpoint that a command is about, if it names one: there, one of this recipe, and no whole run."""
    path = existing(arguments.checkpoint, "checkpoint")
    if path is not None:
        refuse_run_folder(path)
        # with a preset of its own, a recipe may well look at what another one trained
        if not arguments.preset:
            refuse_foreign(path, arguments.recipe, command)
    return path


def refuse_foreign(path: Path, recipe: str, command: str) -> None:
    """Refuse what another recipe trained, and say which one takes it."""
    other = trained_by(path, recipe)
    if other not in (None, recipe):
        option = "--resume" if command == "train" else "--checkpoint"
        raise DataError(f"{path} was trained by {other}: use lookact {command} {other} {option} {path}")


def refuse_run_folder(path: Path) -> None:
    """Refuse a whole run where one of its checkpoints is meant."""
    if (path / METRICS).is_file() and not (path / "model.safetensors").exists():
        inside = sorted(part.name for part in path.iterdir() if part.is_dir() and part.name.startswith("checkpoint-"))
        named = ["best"] * (path / "best").is_dir() + inside[-1:]
        remedy = f"name one of its checkpoints, such as {path / named[0]}" if named else "it has no checkpoint yet"
        raise DataError(f"{path} is the folder of a run: {remedy}")


def trained_by(path: Path, asked: str) -> str | None:
    """The recipe behind a checkpoint or run folder: as recorded, else by the folder's name, else by its settings.

    Runs from before the record was kept have none. None where nobody can tell.
    """
    recorded = read_origin(path).get("recipe")
    if isinstance(recorded, str):
        return recorded
    for parent in path.absolute().parents[:2]:
        if parent.name in RECIPES:
            return parent.name
    saved = saved_config(path)
    if saved is None or takes(asked, saved):
        return None
    return next((name for name in RECIPES if takes(name, saved)), None)


def takes(recipe: str, saved: Path) -> bool:
    """Whether a recipe has all groups of settings that a config file names."""
    try:
        content = yaml.safe_load(saved.read_text(encoding="utf-8"))
        known = {leaf.name.partition(".")[0] for leaf in settings(load_settings(recipe).Config)}
    except (OSError, ValueError, yaml.YAMLError, ConfigError):
        return False
    return isinstance(content, dict) and {current_setting(recipe, str(name)) for name in content} <= {*known, ""}
