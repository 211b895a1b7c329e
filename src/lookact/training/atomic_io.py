"""Files and folders that are wholly there or not there at all, at whatever moment the process dies.

Everything is written under a hidden name beside its target, flushed to the disk, then renamed. What a killed process
left behind under a hidden name is mended or removed by `recover`.
"""

from __future__ import annotations

import errno
import os
import shutil
from pathlib import Path

TEMPORARY = ".tmp-"
REPLACED = ".old-"
NEARLY_FULL = 1 << 20
"""Bytes left free when a writer that hides the reason (torch, safetensors) gave up."""


def sync(path: Path) -> None:
    """Wait until a file, or a folder's list of names, is on the disk."""
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def sync_tree(folder: Path) -> None:
    """Wait until every file below `folder` is on the disk."""
    for path in sorted(folder.rglob("*")):
        sync(path)
    sync(folder)


def write_text(path: Path, text: str) -> None:
    """Put `text` in place of whatever `path` held, at once."""
    temporary = path.with_name(TEMPORARY + path.name)
    temporary.write_text(text, encoding="utf-8")
    sync(temporary)
    temporary.replace(path)
    sync(path.parent)


def place(temporary: Path, target: Path) -> None:
    """Give a finished, synced folder its real name; a folder of that name makes way."""
    replaced = target.with_name(REPLACED + target.name)
    if target.exists():
        target.rename(replaced)
    temporary.rename(target)
    sync(target.parent)
    if replaced.exists():
        discard(replaced)


def discard(folder: Path) -> None:
    """Remove a folder so that no half of it is ever seen under its own name."""
    doomed = folder.with_name(f"{TEMPORARY}discarded{folder.name}")
    shutil.rmtree(doomed, ignore_errors=True)
    folder.rename(doomed)
    shutil.rmtree(doomed)


def recover(folder: Path) -> None:
    """Clear up after a killed process: undo a replacement cut in two, remove what was never finished."""
    for replaced in folder.glob(f"{REPLACED}*"):
        target = folder / replaced.name.removeprefix(REPLACED)
        if target.exists():
            discard(replaced)
        else:
            replaced.rename(target)
    for leftover in folder.glob(f"{TEMPORARY}*"):
        if leftover.is_dir():
            shutil.rmtree(leftover)
        else:
            leftover.unlink()


def link_tree(source: Path, target: Path) -> None:
    """Copy a folder by hard links, which cost no space, or by copies where the file system has none."""
    shutil.copytree(source, target, copy_function=_link_or_copy)


def is_disk_full(error: BaseException, folder: Path) -> bool:
    """Whether a failed write ran out of space. Call it before clearing up."""
    if isinstance(error, OSError) and error.errno in (errno.ENOSPC, errno.EDQUOT):
        return True
    if f"os error {errno.ENOSPC}" in str(error) or os.strerror(errno.ENOSPC) in str(error):
        return True
    return isinstance(error, RuntimeError) and shutil.disk_usage(folder).free < NEARLY_FULL


def _link_or_copy(source: str, target: str) -> None:
    try:
        os.link(source, target)
    except OSError:
        shutil.copy2(source, target)
