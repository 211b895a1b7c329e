import numpy as np
import pytest

from lookact.data.lerobot.video import FAITHFUL, VideoReader, VideoWriter, count_frames, read_video, write_video
from lookact.errors import DataError


def ramp(count: int, side: int = 34) -> np.ndarray:
    """(count, side, side, 3) plain frames, each brighter than the last."""
    return np.stack([np.full((side, side, 3), 20 + 8 * number, np.uint8) for number in range(count)])


def test_frames_come_back_in_number_order_and_size(tmp_path):
    frames = ramp(20)
    write_video(tmp_path / "ramp.mp4", frames, fps=10)
    found = np.stack(list(read_video(tmp_path / "ramp.mp4")))
    assert found.shape == frames.shape
    assert np.abs(found.astype(int) - frames).max() <= 3


def test_single_frames_are_picked_by_number(tmp_path):
    write_video(tmp_path / "ramp.mp4", ramp(20), fps=10)
    assert count_frames(tmp_path / "ramp.mp4") == 20
    brightness = [frame.mean() for frame in read_video(tmp_path / "ramp.mp4", only=[0, 7, 8, 19])]
    assert np.abs(np.array(brightness) - (20 + 8 * np.array([0, 7, 8, 19]))).max() < 3


def test_a_reader_gives_any_run_of_frames(tmp_path):
    write_video(tmp_path / "ramp.mp4", ramp(20), fps=10)
    reader = VideoReader(tmp_path / "ramp.mp4")
    for start, count in ((3, 4), (7, 2), (12, 8), (0, 1)):
        brightness = reader.read(start, count).mean((1, 2, 3))
        assert np.abs(brightness - (20 + 8 * np.arange(start, start + count))).max() < 3


def test_faithful_pixels_keep_a_single_red_one(tmp_path):
    frame = np.full((32, 32, 3), 120, np.uint8)
    frame[10, 11] = 200, 40, 40
    writer = VideoWriter(tmp_path / "dot.mp4", fps=10, pixels=FAITHFUL)
    for _ in range(4):
        writer.add(frame)
    writer.close()
    found = next(iter(read_video(tmp_path / "dot.mp4")))
    assert np.abs(found.astype(int) - frame).max() < 40


def test_a_short_torn_or_missing_video_is_told_by_name(tmp_path):
    path = tmp_path / "ramp.mp4"
    write_video(path, ramp(6), fps=10)
    with pytest.raises(DataError, match=r"ramp.mp4 ends after 6 frames, 9 were expected"):
        VideoReader(path).read(3, 6)
    path.write_bytes(path.read_bytes()[:400])
    with pytest.raises(DataError, match=r"ramp.mp4 can't be decoded") as told:
        list(read_video(path))
    assert "\n" not in str(told.value)
    with pytest.raises(DataError, match=r"gone.mp4 is missing"):
        list(read_video(tmp_path / "gone.mp4"))


def test_frames_keep_one_even_size(tmp_path):
    with pytest.raises(DataError, match="33x33"):
        write_video(tmp_path / "odd.mp4", ramp(1, 33), fps=10)
    writer = VideoWriter(tmp_path / "mixed.mp4", fps=10)
    writer.add(ramp(1)[0])
    with pytest.raises(DataError, match="keep one size"):
        writer.add(ramp(1, 36)[0])
    writer.close()
