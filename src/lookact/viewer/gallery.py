"""Pictures, videos and texts that a run left for people."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from lookact.viewer.places import inside

PICTURES = (".png", ".jpg", ".jpeg", ".webp", ".gif")
VIDEOS = (".mp4", ".webm")
TEXTS = (".txt",)
TYPES = {
    **{".png": "image/png", ".jpg": "image/jpeg", ".jpeg": "image/jpeg", ".webp": "image/webp", ".gif": "image/gif"},
    **{".mp4": "video/mp4", ".webm": "video/webm", ".txt": "text/plain; charset=utf-8"},
}
"""What is served, and as what; everything else in a run folder stays there."""
FOLDERS = ("plots", "samples", "videos", "eval", "episodes", "judge", "warm_start")
"""Where a run keeps what is worth looking at; its own folder counts too."""
KINDS = ("picture", "video", "text")
MOST = 600


def list_media(root: Path, place: str) -> list[dict[str, Any]]:
    """The newest pictures, videos and texts of a run, by folder and kind, then newest first."""
    folder = inside(root, place)
    roots = [folder / name for name in FOLDERS if (folder / name).is_dir() and not (folder / name).is_symlink()]
    paths = [*folder.glob("*"), *(path for base in roots for path in base.rglob("*"))]
    files = [path for path in paths if path.suffix.lower() in TYPES and is_plain_file(path, folder)]
    newest = sorted(files, key=lambda path: (-path.stat().st_mtime, path.name))[:MOST]
    rows = [media_row(root, folder, path) for path in newest]
    return sorted(rows, key=lambda row: (*folder_order(row["folder"]), KINDS.index(row["kind"])))


def media_row(root: Path, folder: Path, path: Path) -> dict[str, Any]:
    """Where a file lies, of which kind it is, and how large."""
    suffix = path.suffix.lower()
    kind = "picture" if suffix in PICTURES else "video" if suffix in VIDEOS else "text"
    return {
        "place": path.relative_to(root).as_posix(),
        "folder": path.parent.relative_to(folder).as_posix(),
        "name": path.name,
        "kind": kind,
        "bytes": path.stat().st_size,
    }


def is_plain_file(path: Path, folder: Path) -> bool:
    """Whether a path is a file reached without a link."""
    links = (part.is_symlink() for part in (path, *path.parents) if part != folder and part.is_relative_to(folder))
    return path.is_file() and not any(links)


def folder_order(folder: str) -> tuple[int, str]:
    """Where a folder stands among others."""
    first = folder.split("/")[0]
    return (FOLDERS.index(first) if first in FOLDERS else -1, folder)
