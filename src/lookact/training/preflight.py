"""What is seen to before any work, any download and any run folder. Every refusal is one line with its remedy.

A recipe's `preflight(cfg, job)` puts these together; the command line calls it. Loads torch for a GPU alone.
"""

from __future__ import annotations

import re
import shutil
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

from lookact.config import to_mapping
from lookact.errors import ConfigError, DataError
from lookact.extras import is_installed, pip_install_for
from lookact.training.run_files import leaves, saved_config, saved_leaves

DEVICE = re.compile(r"cpu|cuda(?::(\d+))?")
LEAST_ROOM = 100 * 2**20
"""Bytes that any run may come to, with its metrics, pictures and a tiny model's checkpoints."""


@dataclass(frozen=True)
class Job:
    """What a command is about to begin."""

    command: Literal["train", "eval", "collect"]
    folder: Path
    """Where its files go; it need not be there yet."""
    checkpoint: Path | None = None
    """Who is measured, or acts; None while training, and for a fresh or a random policy."""
    resume: Path | None = None
    """The checkpoint or run folder that training goes on from."""
    processes: int = 1

    @property
    def trains(self) -> bool:
        return self.command == "train"


def need_package(module: str, what: str, *, instead: str = "") -> None:
    """Refuse `what` where a package is missing; `instead` is the way around it."""
    if not is_installed(module):
        way_around = f", or {instead}" if instead else ""
        raise ConfigError(f"{what} needs the package {module}: {pip_install_for(module)}{way_around}")


def need_device(setting: str, device: str) -> None:
    """Refuse a device that torch does not have here."""
    found = DEVICE.fullmatch(device)
    if found is None:
        raise ConfigError(f"{setting} = {device!r}: choose cpu, cuda or cuda:N")
    if device == "cpu":
        return
    import torch

    if torch.version.cuda is None and torch.version.hip is None:
        raise ConfigError(
            f"{setting} = {device!r}: torch {torch.__version__} is built without CUDA; set --{setting} cpu, or install "
            "a build with it (pytorch.org/get-started)"
        )
    if not torch.cuda.is_available():
        raise ConfigError(f"{setting} = {device!r}: torch sees no GPU (nvidia-smi tells why); set --{setting} cpu")
    count = torch.cuda.device_count()
    if found[1] is not None and int(found[1]) >= count:
        raise ConfigError(f"{setting} = {device!r}: there are {count} GPUs, cuda:0 is the first; choose one of them")


def need_files(checkpoint: Path, recipe: str, names: Sequence[str]) -> None:
    """Refuse a folder that is no checkpoint of this recipe, by the files that all of them have."""
    missing = [name for name in names if not (checkpoint / name).exists()]
    if missing:
        raise DataError(f"{checkpoint} is no {recipe} checkpoint: it has no {missing[0]}")


def need_same(config: Any, resume: Path | None, names: Sequence[str]) -> None:
    """Refuse to go on from a run whose weights have other shapes, by the settings that give them theirs."""
    saved = None if resume is None else saved_config(resume)
    if saved is None:
        return
    before, now = saved_leaves(saved), leaves(to_mapping(config))
    for name in names:
        if name in before and before[name] != now[name]:
            raise ConfigError(
                f"{resume} was trained with {name} {before[name]}, not {now[name]}, and its weights do not fit: leave "
                f"--{name} as it was, or begin a new run"
            )


def need_room(folder: Path, size: float, *, remedy: str) -> None:
    """Refuse to begin on a disk with less room than the run will need at the least."""
    there = next(parent for parent in (folder, *folder.absolute().parents) if parent.exists())
    free, needed = shutil.disk_usage(there).free, max(size, LEAST_ROOM)
    if free < needed:
        raise DataError(f"{there} has {in_words(free)} free, this needs about {in_words(needed)}: {remedy}")


def in_words(size: float) -> str:
    """Bytes for people."""
    return f"{size / 1e9:.1f} GB" if size >= 1e9 else f"{size / 1e6:.0f} MB"
