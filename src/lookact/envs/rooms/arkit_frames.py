"""The frames of an ARKitScenes recording: trajectory, intrinsics, pictures and depth, under both sets of names.

A `.traj` line is `timestamp rx ry rz tx ty tz`, the world-to-camera transform; a `.pincam` is
`width height fx fy cx cy`; depth is 16-bit PNG in millimetres.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TypeVar

import numpy as np
from numpy.typing import NDArray
from PIL import Image, UnidentifiedImageError
from scipy.spatial.transform import Rotation

from lookact.envs.rooms.scene import Array
from lookact.errors import DataError

Entry = TypeVar("Entry")

TOLERANCE = 0.001
"""Seconds by which the timestamps of one moment may differ between files."""


@dataclass(frozen=True)
class Naming:
    """Where the frames folder keeps what."""

    trajectory: str
    intrinsics: str
    depth: str
    images: str


NAMINGS = {
    "lowres_wide": Naming("lowres_wide.traj", "lowres_wide_intrinsics", "lowres_depth", "lowres_wide"),
    "color": Naming("color.traj", "color_intrinsics", "depth_densified", "wide"),
}


@dataclass(frozen=True)
class Frame:
    """One recorded moment; the files are read when they are needed."""

    timestamp: float
    image: Path
    depth: Path | None
    intrinsics: Path | None
    pose: Array | None
    """(4, 4) camera to world, with the file's own height; None when the trajectory has no such moment."""


def read_trajectory(path: Path) -> tuple[Array, Array]:
    """Timestamps (t,) and camera-to-world poses (t, 4, 4)."""
    rows = []
    for number, line in enumerate(_read_text(path).splitlines(), start=1):
        words = line.split()
        if not words:
            continue
        rows.append(_numbers(words, 7, f"{path}: line {number}"))
    table = np.array(rows).reshape(-1, 7)
    to_world = np.swapaxes(Rotation.from_rotvec(table[:, 1:4]).as_matrix(), 1, 2).reshape(-1, 3, 3)
    poses = np.tile(np.eye(4), (len(table), 1, 1))
    poses[:, :3, :3] = to_world
    poses[:, :3, 3] = -np.einsum("tij,tj->ti", to_world, table[:, 4:7])
    return table[:, 0], poses


def write_trajectory(path: Path, timestamps: Array, poses: Array) -> None:
    """The inverse of `read_trajectory`, to the last digit of a float."""
    to_camera = np.swapaxes(poses[:, :3, :3], 1, 2)
    turns = Rotation.from_matrix(to_camera).as_rotvec()
    moves = -np.einsum("tij,tj->ti", to_camera, poses[:, :3, 3])
    lines = [
        " ".join([f"{time:.3f}", *(repr(float(value)) for value in (*turn, *move))])
        for time, turn, move in zip(timestamps, turns, moves)
    ]
    path.write_text("".join(f"{line}\n" for line in lines))


def read_pincam(path: Path) -> tuple[int, int, float, float, float, float]:
    """(width, height, fx, fy, cx, cy)"""
    width, height, fx, fy, cx, cy = _numbers(_read_text(path).split(), 6, str(path))
    if min(width, height, fx, fy) <= 0:
        raise DataError(f"{path}: width, height, fx and fy must be positive, found {width} {height} {fx} {fy}")
    return int(width), int(height), fx, fy, cx, cy


def load_depth(path: str | Path) -> NDArray[np.float32]:
    """(h, w) metres from a 16-bit PNG in millimetres; 0 where nothing was measured."""
    pixels = _read_pixels(Path(path))
    if pixels.ndim != 2:
        raise DataError(f"{path}: a depth map has one channel, found shape {pixels.shape}")
    return pixels.astype(np.float32) / np.float32(1000)


def load_image(path: str | Path) -> NDArray[np.uint8]:
    """(h, w, 3) RGB."""
    pixels = _read_pixels(Path(path))
    if pixels.ndim != 3 or pixels.shape[2] < 3:
        raise DataError(f"{path}: a picture has three channels, found shape {pixels.shape}")
    return np.ascontiguousarray(pixels[..., :3], dtype=np.uint8)


def find_naming(frames: Path) -> Naming:
    """The set of names this folder uses, known by its trajectory."""
    for naming in NAMINGS.values():
        if (frames / naming.trajectory).is_file():
            return naming
    names = " or ".join(naming.trajectory for naming in NAMINGS.values())
    raise DataError(f"{frames}: holds neither {names}; download the scene's trajectory")


def list_frames(frames: Path) -> tuple[Frame, ...]:
    """Every picture of the folder `{video_id}_frames` in order of time, with what belongs to the same moment."""
    naming = find_naming(frames)
    times, poses = read_trajectory(frames / naming.trajectory)
    pose_of = {_key(time): pose for time, pose in zip(times, poses)}
    depth_of = _files_by_time(frames / naming.depth, ".png")
    intrinsics_of = _files_by_time(frames / naming.intrinsics, ".pincam")
    return tuple(
        Frame(key / 1000, image, _nearby(depth_of, key), _nearby(intrinsics_of, key), _nearby(pose_of, key))
        for key, image in sorted(_files_by_time(frames / naming.images, ".png").items())
    )


def _key(timestamp: float) -> int:
    """Milliseconds: timestamps agree at three decimals."""
    return round(timestamp * 1000)


def _nearby(table: Mapping[int, Entry], key: int) -> Entry | None:
    """The entry at that millisecond, or one within the tolerance."""
    slack = round(TOLERANCE * 1000)
    for candidate in (key, *(key + sign * step for step in range(1, slack + 1) for sign in (-1, 1))):
        if candidate in table:
            return table[candidate]
    return None


def _files_by_time(folder: Path, suffix: str) -> dict[int, Path]:
    """Millisecond to file; the name ends in `_{timestamp}`."""
    files = {}
    for path in sorted(folder.glob(f"*{suffix}")):
        try:
            files[_key(float(path.name.removesuffix(suffix).rsplit("_", 1)[-1]))] = path
        except ValueError:
            raise DataError(f"{path}: the name must end in _<timestamp>{suffix}") from None
    return files


def _numbers(words: list[str], count: int, place: str) -> list[float]:
    try:
        numbers = [float(word) for word in words]
    except ValueError as error:
        raise DataError(f"{place}: {error}") from None
    if len(numbers) != count or not np.isfinite(numbers).all():
        raise DataError(f"{place}: needs {count} finite numbers, found {len(numbers)}: {' '.join(words)[:80]}")
    return numbers


def _read_text(path: Path) -> str:
    try:
        return path.read_text()
    except (OSError, UnicodeDecodeError) as error:
        raise DataError(f"{path}: cannot be read ({type(error).__name__}); download it again") from None


def _read_pixels(path: Path) -> NDArray[np.generic]:
    try:
        with Image.open(path) as image:
            return np.asarray(image)
    except (OSError, UnidentifiedImageError, SyntaxError) as error:
        raise DataError(f"{path}: is not a readable picture ({type(error).__name__}); download it again") from None
