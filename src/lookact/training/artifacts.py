"""Where heavy output goes: the disk that `ARTIFACT_ROOT` names keeps every checkpoint, the run's folder the newest."""

from __future__ import annotations

import logging
import os
import shutil
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from lookact.protocols import Stateful
from lookact.training.atomic_io import TEMPORARY, discard, place, sync_tree
from lookact.training.checkpoint import Best, abandon_newer, save_checkpoint
from lookact.training.run import Run
from lookact.training.weights import Weights

logger = logging.getLogger(__name__)
ROOT = "ARTIFACT_ROOT"


def artifact_folder(run: Run) -> Path | None:
    """The run's folder under `ARTIFACT_ROOT`, by recipe and name, or None where the variable is not set."""
    root = os.environ.get(ROOT, "")
    return Path(root, run.folder.parent.name, run.folder.name) if root else None


def begin_artifacts(run: Run) -> None:
    """Set aside what the scratch disk holds beyond the step this run goes on from."""
    folder = artifact_folder(run)
    if folder is not None:
        folder.mkdir(parents=True, exist_ok=True)
        abandon_newer(folder, run.done if run.resumed_from is not None else -1)
        logger.info("checkpoints are kept in %s, the newest here too", folder)


def save_artifacts(
    run: Run,
    step: int,
    *,
    weights: Mapping[str, Weights],
    state: Mapping[str, Stateful | Any],
    metrics: Mapping[str, float],
    keep: int,
    best: Best,
) -> None:
    """A checkpoint in the run's folder; with `ARTIFACT_ROOT`, all of them there and a copy of the newest here."""
    folder = artifact_folder(run)
    if folder is None:
        run.save(step, weights=weights, state=state, metrics=metrics, keep=keep, best=best)
        return
    config = run.config
    path = save_checkpoint(folder, step, weights=weights, state=state, metrics=metrics, config=config, best=best)
    bring_back(path, run.folder)


def bring_back(checkpoint: Path, folder: Path) -> None:
    """Copy a checkpoint into `folder`, whole or not at all, in place of the older ones there."""
    older = [path for path in folder.glob("checkpoint-*") if path.name != checkpoint.name]
    temporary = folder / (TEMPORARY + checkpoint.name)
    shutil.rmtree(temporary, ignore_errors=True)
    shutil.copytree(checkpoint, temporary)
    sync_tree(temporary)
    place(temporary, folder / checkpoint.name)
    for path in older:
        discard(path)
