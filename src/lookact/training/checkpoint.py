"""Checkpoints that are whole or absent: `checkpoint-{step}/` with weights, training state, metrics and a manifest.

Weights named `model`, and the `readers` written beside them (tokenizer, image processor), lie at the top of the folder,
where Hugging Face's `from_pretrained` finds them; all others (`value_head`, `peft_adapter`, ...) in a folder of their
name.
"""

from __future__ import annotations

import hashlib
import json
import logging
import re
import shutil
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

import torch
import yaml
from torch import nn

from lookact.config.aliases import renew_metrics
from lookact.errors import ConfigError, DataError
from lookact.protocols import Stateful
from lookact.training.atomic_io import TEMPORARY, discard, is_disk_full, link_tree, place, sync_tree, write_text
from lookact.training.run_files import write_origin
from lookact.training.trackers import finite_or_none
from lookact.training.weights import (
    Weights,
    check_fit,
    is_stateful,
    load_stateful,
    read_snapshot,
    read_weights,
    snapshot,
    write_weights,
)

logger = logging.getLogger(__name__)

MANIFEST = "manifest.json"
"""Lists a checkpoint's files with their sizes and hashes: it tells a whole one from a torn or foreign one."""
FORMAT = "lookact-checkpoint"
VERSION = 1
STATE_FILE = "training_state.pt"
METRICS_FILE = "metrics.json"
CONFIG_FILE = "config.yaml"
BEST = "best"
ABANDONED = "abandoned"
AT_THE_TOP = ("model", "readers")
Best = tuple[str, Literal["max", "min"]]
"""A metric's name, and which way is better."""


@dataclass(frozen=True)
class Checkpoint:
    """A checkpoint that was read and found whole."""

    folder: Path
    step: int
    state: Mapping[str, Any]
    """Everything saved under `state`, as plain data."""
    metrics: Mapping[str, float | None]
    config: Mapping[str, Any]
    random: Mapping[str, Any]
    """For `set_rng_state`."""

    def weights(self, name: str = "model") -> Path:
        """The folder that holds the weights of this name."""
        return _weights_folder(self.folder, name)


def save_checkpoint(
    run_folder: Path,
    step: int,
    *,
    weights: Mapping[str, Weights],
    state: Mapping[str, Stateful | Any],
    metrics: Mapping[str, float],
    config: Mapping[str, Any],
    origin: Mapping[str, Any] | None = None,
    keep: int | None = None,
    best: Best | None = None,
) -> Path:
    """Write `checkpoint-{step}`, keep the newest `keep`, and a copy in `best/` if `best`'s metric is the best so far.

    Until it is complete nothing under a real name changes: a kill or a full disk leaves the last good one alone.
    """
    if keep is not None and keep < 1:
        raise ConfigError(f"keep={keep} would delete the checkpoint just written: give 1 or more, or None for all")
    if best is not None and best[0] not in metrics:
        raise ConfigError(f"best={best[0]} is none of the metrics {sorted(metrics)}")
    target = run_folder / f"checkpoint-{step}"
    temporary = run_folder / (TEMPORARY + target.name)
    remembered = snapshot(state)
    try:
        _write(temporary, step, weights, remembered, metrics, config, origin or {})
        # before the checkpoint itself: a run killed in between comes here again, with the same metric
        if best is not None:
            _keep_best(run_folder, temporary, metrics, best)
        place(temporary, target)
    except BaseException as error:
        full = is_disk_full(error, run_folder)
        for unfinished in (temporary, run_folder / (TEMPORARY + BEST)):
            shutil.rmtree(unfinished, ignore_errors=True)
        if full:
            raise DataError(
                f"no space left to write {target}: free some and go on with --auto-resume; "
                "the checkpoints before it are whole"
            ) from error
        raise
    for _, old in _numbered(run_folder)[:-keep] if keep is not None else []:
        discard(old)
    return target


def load_checkpoint(
    path: Path,
    *,
    weights: Mapping[str, Weights] | None = None,
    state: Mapping[str, Stateful | Any] | None = None,
) -> Checkpoint:
    """Read a checkpoint and fill the modules and Statefuls given; all are checked before the first is touched.

    Functions among `weights` and plain values among `state` are passed over: read `weights(name)` and `state[name]`
    of the result. Names given under `state` must be those saved, so that nothing is forgotten.
    """
    step = verify(path)
    record = read_snapshot(path / STATE_FILE)
    if state is not None:
        check_fit(record, state, path)
    loads = [
        read_weights(module, _weights_folder(path, name))
        for name, module in (weights or {}).items()
        if isinstance(module, nn.Module)
    ]
    metrics = json.loads((path / METRICS_FILE).read_text(encoding="utf-8"))
    config = yaml.safe_load((path / CONFIG_FILE).read_text(encoding="utf-8"))
    for name, item in (state or {}).items():
        if is_stateful(item):
            load_stateful(item, record["items"][name])
    for load in loads:
        load()
    return Checkpoint(path, step, record["items"], metrics, config, record["random"])


def latest_checkpoint(run_folder: Path) -> Path | None:
    """The newest checkpoint that is whole, or None."""
    for _, folder in reversed(_numbered(run_folder)):
        try:
            verify(folder)
        except DataError as error:
            logger.warning("passed over: %s", error)
        else:
            return folder
    return None


def abandon_newer(run_folder: Path, step: int) -> None:
    """Set aside, in `abandoned/`, all that a run resumed from `step` will write again or differently."""
    newer = [folder for number, folder in _numbered(run_folder) if number > step]
    best_step = _best_step(run_folder)
    if best_step is not None and best_step > step:
        newer.append(run_folder / BEST)
    for folder in newer:
        aside = run_folder / ABANDONED / folder.name
        aside.parent.mkdir(exist_ok=True)
        if aside.exists():
            discard(aside)
        folder.rename(aside)
        logger.warning("%s is newer than the resumed step %d: moved to %s/", folder.name, step, ABANDONED)


def _write(
    folder: Path,
    step: int,
    weights: Mapping[str, Weights],
    remembered: Mapping[str, Any],
    metrics: Mapping[str, float],
    config: Mapping[str, Any],
    origin: Mapping[str, Any],
) -> None:
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    for name, item in weights.items():
        write_weights(item, _weights_folder(folder, name))
    torch.save(dict(remembered), folder / STATE_FILE)
    numbers = {name: finite_or_none(value) for name, value in metrics.items()}
    write_text(folder / METRICS_FILE, json.dumps(numbers, indent=2) + "\n")
    write_text(folder / CONFIG_FILE, yaml.safe_dump(dict(config), sort_keys=False))
    write_origin(folder, origin)
    write_manifest(folder, step)
    sync_tree(folder)


def _keep_best(run_folder: Path, candidate: Path, metrics: Mapping[str, float], best: Best) -> None:
    name, direction = best
    value = finite_or_none(metrics[name])
    if value is None:
        return
    if _best_step(run_folder) is not None:
        record = renew_metrics(json.loads((run_folder / BEST / METRICS_FILE).read_text(encoding="utf-8"))).get(name)
        if record is not None and (value <= record if direction == "max" else value >= record):
            return
    temporary = run_folder / (TEMPORARY + BEST)
    shutil.rmtree(temporary, ignore_errors=True)
    link_tree(candidate, temporary)
    sync_tree(temporary)
    place(temporary, run_folder / BEST)


def _best_step(run_folder: Path) -> int | None:
    """The step of `best/`, or None if there is none or it is torn. Sizes suffice: hashing it at each save is dear."""
    if not (run_folder / BEST / MANIFEST).exists():
        return None
    try:
        return verify(run_folder / BEST, hashes=False)
    except DataError:
        return None


def _numbered(run_folder: Path) -> list[tuple[int, Path]]:
    """Every folder named like a checkpoint, oldest first."""
    found = [(re.fullmatch(r"checkpoint-(\d+)", path.name), path) for path in run_folder.glob("checkpoint-*")]
    return sorted((int(match[1]), path) for match, path in found if match and path.is_dir())


def _weights_folder(folder: Path, name: str) -> Path:
    return folder if name in AT_THE_TOP else folder / name


def write_manifest(folder: Path, step: int) -> None:
    """List every file below `folder`. Write it last: its presence says that the rest is complete."""
    files = {
        path.relative_to(folder).as_posix(): {"size": path.stat().st_size, "sha256": _sha256(path)}
        for path in sorted(folder.rglob("*"))
        if path.is_file() and path.name != MANIFEST
    }
    record = {"format": FORMAT, "version": VERSION, "step": step, "files": files}
    write_text(folder / MANIFEST, json.dumps(record, indent=2) + "\n")


def verify(folder: Path, *, hashes: bool = True) -> int:
    """The step of a whole checkpoint; anything torn, foreign or newer than this code raises DataError."""
    record = _read_manifest(folder)
    for name, entry in record["files"].items():
        path = folder / name
        if ".." in Path(name).parts or not path.is_file():
            raise DataError(f"{folder} is torn: {name} is missing; use another checkpoint")
        if path.stat().st_size != entry["size"]:
            raise DataError(
                f"{folder} is torn: {name} has {path.stat().st_size} bytes, not {entry['size']}; use another checkpoint"
            )
        if hashes and _sha256(path) != entry["sha256"]:
            raise DataError(f"{folder} is torn: the contents of {name} have changed; use another checkpoint")
    return int(record["step"])


def _read_manifest(folder: Path) -> Mapping[str, Any]:
    path = folder / MANIFEST
    if not path.is_file():
        raise DataError(f"{folder} is not a LookAct checkpoint: it has no {MANIFEST}")
    try:
        record = json.loads(path.read_text(encoding="utf-8"))
    except ValueError:
        raise DataError(f"{folder} is torn: {MANIFEST} cannot be read; use another checkpoint") from None
    if not isinstance(record, dict) or record.get("format") != FORMAT:
        raise DataError(f"{folder} is not a LookAct checkpoint: its {MANIFEST} is of another kind")
    if record.get("version") != VERSION:
        raise DataError(
            f"{folder} has checkpoint version {record.get('version')}, this LookAct reads {VERSION}: upgrade lookact"
        )
    if not isinstance(record.get("step"), int) or not isinstance(record.get("files"), dict):
        raise DataError(f"{folder} is torn: {MANIFEST} is incomplete; use another checkpoint")
    return record


def _sha256(path: Path) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()
