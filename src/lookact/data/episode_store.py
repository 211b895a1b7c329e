"""Episodes on disk: a manifest to read with any tool, and tensors that load without pickle.

The one format of episodes, of token policies (their actions are words) and of control policies (vectors): train, eval,
demo and collect write it, the viewer reads it. `episode_manifest.jsonl` holds one line an episode;
`{episode_id}_tensors.pt` its arrays. The manifest line is written last, so an interrupted collection never lists an
episode whose tensors are not there.
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import torch

from lookact.data.manifest import MANIFEST
from lookact.data.store_records import episode_of, episode_row, episode_tensors
from lookact.errors import DataError
from lookact.types import Episode


class EpisodeStore:
    """A folder of episodes that can be appended to, interrupted and read back equal."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        folder.mkdir(parents=True, exist_ok=True)
        self._drop_torn_line()

    def ids(self) -> set[str]:
        """Episodes already complete on disk."""
        return {row["episode_id"] for row in self.rows()}

    def rows(self) -> Iterator[dict[str, Any]]:
        path = self.folder / MANIFEST
        if not path.exists():
            return
        for number, line in enumerate(path.read_text().splitlines(), start=1):
            try:
                yield json.loads(line)
            except json.JSONDecodeError as error:
                raise DataError(f"{path} line {number} is not JSON: remove the line and collect again") from error

    def add(self, episode: Episode) -> None:
        """Tensors first, then the manifest line."""
        path = self.folder / f"{episode.id}_tensors.pt"
        temporary = path.with_suffix(".partial")
        torch.save(episode_tensors(episode), temporary)
        temporary.replace(path)
        with (self.folder / MANIFEST).open("a") as manifest:
            manifest.write(json.dumps(episode_row(episode)) + "\n")
            manifest.flush()
            os.fsync(manifest.fileno())

    def load(self, row: Mapping[str, Any]) -> Episode:
        """The episode behind a manifest row, equal to the one that was added."""
        return load_episode(self.folder, row)

    def episodes(self) -> Iterator[Episode]:
        return (self.load(row) for row in self.rows())

    def _drop_torn_line(self) -> None:
        path = self.folder / MANIFEST
        if path.exists() and (content := path.read_bytes()) and not content.endswith(b"\n"):
            path.write_bytes(content[: content.rfind(b"\n") + 1])


def load_episode(folder: Path, row: Mapping[str, Any]) -> Episode:
    """The same without opening the store, which mends it: for who may only look."""
    path = folder / f"{row['episode_id']}_tensors.pt"
    try:
        saved = torch.load(path, weights_only=True)
    except FileNotFoundError as error:
        raise DataError(f"{path} is missing: the manifest lists it, so the folder was copied in part") from error
    except Exception as error:
        raise DataError(f"{path} can't be read ({error}): delete its manifest line and collect again") from error
    return episode_of(row, saved)
