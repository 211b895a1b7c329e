"""The general tiny VLM in the cache: where it lies, and from which settings it was made. No torch."""

from __future__ import annotations

import hashlib
import json
from dataclasses import asdict, dataclass
from pathlib import Path

from lookact.errors import DataError
from lookact.text.file_names import cache_folder

GENERAL = "general-tiny"
"""The source of the general tiny VLM."""
VERSION = 1
"""Of what it is taught; a cached one of another version is not used."""


@dataclass(frozen=True)
class GeneralSpec:
    """How the general tiny VLM is made."""

    seed: int = 0
    images: int = 4000
    """Scenes for vision pretraining."""
    image_epochs: int = 6
    conversations: int = 8000
    """Of one to four questions."""
    epochs: int = 3
    lr: float = 1e-3

    @property
    def folder(self) -> Path:
        """Named by all that it depends on."""
        told = json.dumps({"version": VERSION, **asdict(self)}, sort_keys=True)
        return cache_folder() / f"{GENERAL}-{hashlib.sha256(told.encode()).hexdigest()[:12]}"


def find_general() -> Path:
    """The folder of the general tiny VLM with its default settings."""
    folder = GeneralSpec().folder
    if not (folder / "config.json").exists():
        raise DataError(f"{GENERAL} is not in {cache_folder()} yet: make it once with lookact pretrain")
    return folder
