"""Episodes on disk: a manifest to read with any tool, and tensors that load without pickle.

The one format of episodes, of token policies (their actions are words) and of control policies (vectors): train, eval,
demo and collect write it, the viewer reads it. `episode_manifest.jsonl` holds one line an episode;
`{episode_id}_tensors.pt` its arrays. The manifest line is written last, so an interrupted collection never lists an
episode whose tensors are not there.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import torch

from lookact.data.jsonl import MANIFEST, append_row, drop_torn_line, read_rows
from lookact.data.store_records import episode_of, episode_row, episode_tensors
from lookact.errors import DataError
from lookact.types import Episode


class EpisodeStore:
    """A folder of episodes that can be appended to, interrupted and read back equal."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        folder.mkdir(parents=True, exist_ok=True)
        drop_torn_line(folder / MANIFEST)

    def ids(self) -> set[str]:
        """Episodes already complete on disk."""
        return {row["episode_id"] for row in self.rows()}

    def rows(self) -> Iterator[dict[str, Any]]:
        path = self.folder / MANIFEST
        return read_rows(path, remedy="remove the line and collect again") if path.exists() else iter(())

    def add(self, episode: Episode) -> None:
        """Tensors first, then the manifest line."""
        path = self.folder / f"{episode.id}_tensors.pt"
        temporary = path.with_suffix(".partial")
        torch.save(episode_tensors(episode), temporary)
        temporary.replace(path)
        append_row(self.folder / MANIFEST, episode_row(episode), durable=True)

    def load(self, row: Mapping[str, Any]) -> Episode:
        """The episode behind a manifest row, equal to the one that was added."""
        return load_episode(self.folder, row)

    def episodes(self) -> Iterator[Episode]:
        return (self.load(row) for row in self.rows())


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
