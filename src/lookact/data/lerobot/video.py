"""Frames to mp4 and back, through the ffmpeg that imageio-ffmpeg brings along."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from lookact.errors import DataError
from lookact.types import Image

CODEC = "h264"
PLAYABLE, FAITHFUL = "yuv420p", "yuv444p"
"""Pixel formats: the first plays everywhere, the second keeps the colours of single pixels."""
QUALITY = 10
"""Constant rate factor: 0 keeps every bit, 51 is worst; at 10 an eye sees no loss."""


class VideoWriter:
    """Writes one mp4, frame by frame. Height and width must be even."""

    def __init__(self, path: Path, *, fps: int, pixels: str = PLAYABLE) -> None:
        self.path, self.fps, self.pixels, self.frames = path, fps, pixels, 0
        self._shape: tuple[int, ...] = ()
        self._sink: Any = None

    def add(self, frame: Image) -> None:
        """(h, w, 3), as large as the first."""
        if self._sink is None:
            self._open(frame)
        if frame.shape != self._shape:
            raise DataError(f"{self.path} holds frames of {self._shape}, not of {frame.shape}: keep one size")
        self._sink.send(np.ascontiguousarray(frame))
        self.frames += 1

    def close(self) -> None:
        """Finish the file."""
        if self._sink is not None:
            self._sink.close()
            self._sink = None

    def _open(self, frame: Image) -> None:
        height, width, _ = self._shape = frame.shape
        if height % 2 or width % 2:
            raise DataError(f"{self.path}: frames of {width}x{height} can't be stored, mp4 needs even sides")
        self.path.parent.mkdir(parents=True, exist_ok=True)
        self._sink = _ffmpeg().write_frames(
            str(self.path),
            (width, height),
            fps=self.fps,
            codec="libx264",
            quality=None,
            macro_block_size=2,
            pix_fmt_out=self.pixels,
            # a key frame every other frame, so that any step can be read without the whole episode
            output_params=["-crf", str(QUALITY), "-preset", "fast", "-g", "2", "-threads", "1"],
        )
        self._sink.send(None)


def write_video(path: Path, frames: Iterable[Image], *, fps: int) -> None:
    """All frames (h, w, 3) as one mp4."""
    writer = VideoWriter(path, fps=fps)
    for frame in frames:
        writer.add(frame)
    writer.close()


class VideoReader:
    """Reads runs of frames from one mp4, front to back."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self._frames: Iterator[Image] = iter(())
        self._position = -1

    def read(self, start: int, count: int) -> NDArray[np.uint8]:
        """(count, h, w, 3) from frame `start` on; cheapest where it follows the last run."""
        if self._position < 0 or start < self._position:
            self._frames, self._position = read_video(self.path), 0
        found = []
        for frame in self._frames:
            self._position += 1
            if self._position > start:
                found.append(frame)
            if self._position == start + count:
                return np.stack(found)
        raise DataError(
            f"{self.path} ends after {self._position} frames, {start + count} were expected: write it again"
        )


def read_video(path: Path, *, only: Sequence[int] | None = None) -> Iterator[Image]:
    """Every frame (h, w, 3) of an mp4, or those with the numbers `only`, which rise."""
    # a comma parts filters unless it is escaped
    chosen = "" if only is None else "select=" + "+".join(rf"eq(n\,{number})" for number in only)
    return _decoded(path, chosen)


def count_frames(path: Path) -> int:
    """How many frames `read_video` gives."""
    return sum(1 for _ in _decoded(path, "scale=2:2"))


def _decoded(path: Path, filters: str) -> Iterator[Image]:
    if not path.is_file():
        raise DataError(f"{path} is missing: the folder was copied in part")
    # every stored frame once, whatever its time stamp says
    options = ["-fps_mode", "passthrough", *(["-vf", filters] if filters else [])]
    frames = _ffmpeg().read_frames(str(path), output_params=options)
    try:
        width, height = next(frames)["size"]
        for frame in frames:
            yield np.frombuffer(frame, np.uint8).reshape(height, width, 3)
    except (OSError, RuntimeError, ValueError, KeyError) as error:
        told = " ".join(str(error).split())[-160:]
        raise DataError(f"{path} can't be decoded, it is torn or no video: {told}") from error
    finally:
        frames.close()


def _ffmpeg() -> Any:
    try:
        import imageio_ffmpeg
    except ImportError as error:
        raise DataError('videos need imageio-ffmpeg: pip install "lookact[robot]"') from error
    return imageio_ffmpeg
