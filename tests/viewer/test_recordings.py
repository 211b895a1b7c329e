import io
from pathlib import Path

import numpy as np
import PIL.Image
import pytest

from lookact import viewer
from lookact.data.sequences import Recording
from lookact.viewer.episodes import episode_detail, list_episodes, list_stores, picture
from lookact.viewer.places import NotHere, find

ROWS, STEPS = 2, 3


def recording(first):
    """Frames that tell row and time; the second row breaks down in its last step."""
    shades = first + 10 * np.arange(ROWS)[:, None] + np.arange(STEPS + 1)
    frames = np.broadcast_to(shades[..., None, None, None], (ROWS, STEPS + 1, 4, 6, 3)).astype(np.uint8)
    return Recording(
        wrist=frames,
        head=255 - frames,
        state=shades[..., None].astype(np.float32),
        actions=shades[:, :STEPS, None].astype(np.float32) / 8,
        texts=np.array(["reach the red cube", "reach the blue cube"]),
        counts=np.array([[True, True, True], [True, True, False]]),
    )


@pytest.fixture
def folder(tmp_path):
    recording(0).save(tmp_path / "run/episodes/random-0000.npz")
    recording(100).save(tmp_path / "run/episodes/random-0001.npz")
    return tmp_path


def test_recordings_are_found_and_listed_episode_by_episode(folder):
    assert list_stores(folder, find(folder).stores) == [{"place": "run/episodes", "episodes": 4}]
    rows = list_episodes(folder, "run/episodes")
    sentences = (Path(viewer.__file__).parent / "static/turn.js").read_text()
    assert all(f"  {row['ended']}: " in sentences for row in rows)
    assert [(row["id"], row["length"], row["question"], row["ended"]) for row in rows] == [
        ("random-0000.0", 3, "reach the red cube", "recorded"),
        ("random-0000.1", 2, "reach the blue cube", "broken"),
        ("random-0001.0", 3, "reach the red cube", "recorded"),
        ("random-0001.1", 2, "reach the blue cube", "broken"),
    ]


def test_an_episode_step_by_step(folder):
    told = episode_detail(folder, "run/episodes", "random-0001.1")
    assert [(turn["state"], turn["action"]) for turn in told["turns"]] == [([110.0], [13.75]), ([111.0], [13.875])]
    assert told["turns"][0]["cameras"] == [{"name": name, "height": 4, "width": 6} for name in ("wrist", "head")]
    image = np.asarray(PIL.Image.open(io.BytesIO(picture(folder, "run/episodes", "random-0001.1", 1, "head"))))
    assert (image == 255 - 111).all()
    for asked in (("random-0001.1", 2), ("random-0001.9", 0), ("random-0009.0", 0), ("random-0001.x", 0), ("..", 0)):
        with pytest.raises(NotHere):
            picture(folder, "run/episodes", *asked, "head")


def test_a_torn_file_is_left_out_and_another_ones_arrays_are_no_episodes(folder):
    torn = folder / "run/episodes/random-0000.npz"
    torn.write_bytes(torn.read_bytes()[:200])
    np.savez(folder / "run/episodes/other-0000.npz", a=np.zeros(2))
    assert [row["id"] for row in list_episodes(folder, "run/episodes")] == ["random-0001.0", "random-0001.1"]
