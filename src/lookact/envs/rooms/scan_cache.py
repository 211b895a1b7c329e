"""Scans as they are used, kept in the cache folder: read and prepared once, by worker processes where there are many.

A file of the cache is named by the scan's files, their sizes and times of change, so that a new download is read anew.
"""

from __future__ import annotations

import hashlib
import json
import multiprocessing
import os
import zipfile
from collections.abc import Sequence
from concurrent.futures import ProcessPoolExecutor
from contextlib import suppress
from dataclasses import fields
from pathlib import Path

import numpy as np

from lookact.envs.rooms.arkit import load_scene
from lookact.envs.rooms.scene import Box, Scene
from lookact.envs.rooms.space import FreeSpace, free_space
from lookact.text.file_names import cache_folder

VERSION = 1
"""Of how scans are read; files of another version are not used."""
MANY = 4
"""Scans for which worker processes pay."""
PARTS = ("vertices", "faces", "colors", "instances", "floor", "trajectory")


def open_scan(folder: str | Path) -> tuple[Scene, FreeSpace]:
    """The scan in an ARKitScenes folder, and where one can walk in it."""
    kept = cache_file(Path(folder))
    with suppress(OSError, ValueError, KeyError, zipfile.BadZipFile):
        return read_scan(kept)
    scene = load_scene(folder)
    space = free_space(scene)
    # a disk that is full or read-only costs time alone
    with suppress(OSError):
        write_scan(kept, scene, space)
    return scene, space


def keep_scans(folders: Sequence[str], *, workers: int | None = None) -> None:
    """Read into the cache what is not there yet, by processes of their own where it is many."""
    missing = [folder for folder in folders if not cache_file(Path(folder)).exists()]
    if len(missing) >= MANY:
        spawn = multiprocessing.get_context("spawn")
        with ProcessPoolExecutor(min(len(missing), workers or os.cpu_count() or 1), spawn) as pool:
            list(pool.map(_keep, missing))


def _keep(folder: str) -> None:
    open_scan(folder)


def cache_file(folder: Path) -> Path:
    """Where the scan of a folder is kept; missing folders have a name too."""
    files = [*folder.glob("*_3dod_*"), *folder.glob("*_frames/*.traj")]
    told = [(file.name, file.stat().st_size, file.stat().st_mtime_ns) for file in sorted(files)]
    named = json.dumps([VERSION, str(folder.resolve()), told])
    return cache_folder() / "scans" / f"{folder.name}-{hashlib.sha256(named.encode()).hexdigest()[:16]}.npz"


def write_scan(path: Path, scene: Scene, space: FreeSpace) -> None:
    """Under its own name only when it is whole: several processes may write it at once."""
    path.parent.mkdir(parents=True, exist_ok=True)
    arrays = {part: getattr(scene, part) for part in PARTS} | {"free": space.free, "origin": space.origin}
    for field in fields(Box):
        arrays[f"box_{field.name}"] = np.array([getattr(box, field.name) for box in scene.boxes])
    temporary = path.with_name(f".{path.stem}-{os.getpid()}.npz")
    np.savez(temporary, id=np.array(scene.id), cell=np.array(space.cell), **arrays)
    temporary.replace(path)


def read_scan(path: Path) -> tuple[Scene, FreeSpace]:
    """What `write_scan` was given, to the last bit."""
    with np.load(path, allow_pickle=False) as kept:
        columns = [kept[f"box_{field.name}"] for field in fields(Box)]
        boxes = tuple(Box(str(uid), str(label), *rest) for uid, label, *rest in zip(*columns))
        parts = {part: kept[part] for part in PARTS}
        scene = Scene(id=str(kept["id"]), boxes=boxes, **parts)
        return scene, FreeSpace(kept["free"], kept["origin"], float(kept["cell"]))
