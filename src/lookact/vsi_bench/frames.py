"""Frames of VSI-Bench's scenes: spread evenly over `{dataset}/{scene_name}.mp4`, or over an ARKitScenes folder."""

from __future__ import annotations

from pathlib import Path

import numpy as np

from lookact.data.lerobot.video import count_frames, read_video
from lookact.envs.rooms.arkit_frames import find_naming, list_frames, load_image, read_trajectory
from lookact.envs.rooms.scene import Array
from lookact.errors import DataError
from lookact.types import Image


def find_scene(videos: Path, dataset: str, scene: str) -> Path | None:
    """A scene's video or its ARKitScenes folder; None where there is neither."""
    if any(name in ("", ".", "..") or "/" in name or "\\" in name for name in (dataset, scene)):
        raise DataError(f"{dataset}/{scene} is no name of a scene")
    found = (videos / dataset / f"{scene}.mp4", videos / dataset / scene)
    return next((path for path in found if path.exists()), None)


def sample_frames(source: Path, count: int) -> list[Image]:
    """`count` frames (h, w, 3) from first to last, or all where there are fewer."""
    if not source.is_dir():
        return list(read_video(source, only=spread(count_frames(source), count)))
    inner = source / f"{source.name}_frames"
    # the raw layout keeps its frames in the scene's own folder
    folder = inner if inner.is_dir() else source
    recorded = list_frames(folder)
    turns = quarter_turns(read_trajectory(folder / find_naming(folder).trajectory)[1])
    chosen = (recorded[place] for place in spread(len(recorded), count))
    return [np.ascontiguousarray(np.rot90(load_image(frame.image), turns)) for frame in chosen]


def spread(total: int, count: int) -> list[int]:
    """`count` places from 0 to `total` - 1, evenly and rounded down, as the published code takes them."""
    if not total:
        raise DataError("there are no frames")
    chosen: list[int] = np.linspace(0, total - 1, min(count, total), dtype=int).tolist()
    return chosen


def quarter_turns(poses: Array) -> int:
    """How often pictures with these poses (t, 4, 4) are turned by 90 degrees, counter-clockwise, to stand upright.

    A recording is turned as a whole: each pose votes for the side on which it sees the world's up, the more the less
    steeply it looks up or down.
    """
    if not len(poses):
        raise DataError("the trajectory has no poses, so frames can't be turned upright")
    right, down = poses[:, 2, 0], poses[:, 2, 1]
    sides = np.rint(np.arctan2(right, -down) / (np.pi / 2)).astype(int) % 4
    return int(np.bincount(sides, weights=np.hypot(right, down), minlength=4).argmax())
