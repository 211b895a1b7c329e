import io
import json
from pathlib import Path

import numpy as np
import PIL.Image
import pytest

from lookact import viewer
from lookact.data.lerobot.read import Demonstration
from lookact.data.lerobot.write import write_demonstrations
from lookact.data.sequences import Recording
from lookact.viewer.episodes import episode_detail, list_episodes, list_stores, picture
from lookact.viewer.folder import NotFound, find


def demonstration(number, length):
    """Steps whose frames grow lighter, and whose actions tell their number."""
    frames = np.broadcast_to(20 * np.arange(length)[:, None, None, None], (length, 32, 48, 3)).astype(np.uint8)
    states = np.full((length, 2), number, np.float32)
    actions = np.stack([np.arange(length), np.full(length, -0.5)], axis=1).astype(np.float32)
    return Demonstration(f"put thing {number} away", {"head": frames, "wrist": 255 - frames}, states, actions)


@pytest.fixture
def folder(tmp_path):
    write_demonstrations(tmp_path / "demos", iter([demonstration(0, 3), demonstration(1, 5)]), fps=10, robot="panda")
    return tmp_path


def test_a_lerobot_folder_is_found_and_listed(folder):
    assert list_stores(folder, find(folder).stores) == [{"place": "demos", "episodes": 2}]
    rows = list_episodes(folder, "demos")
    assert [(row["id"], row["length"], row["question"], row["return"]) for row in rows] == [
        ("0", 3, "put thing 0 away", None),
        ("1", 5, "put thing 1 away", None),
    ]


def test_a_demonstration_step_by_step(folder):
    demo = episode_detail(folder, "demos", "1")
    assert [turn["action"] for turn in demo["turns"]] == [[float(step), -0.5] for step in range(5)]
    first = demo["turns"][0]
    assert first["state"] == [1.0, 1.0]
    assert first["cameras"] == [{"name": name, "height": 32, "width": 48} for name in ("head", "wrist")]
    assert json.loads(json.dumps(demo, allow_nan=False)) == demo
    image = np.asarray(PIL.Image.open(io.BytesIO(picture(folder, "demos", "1", 4, "head"))), int)
    # the codec may be a few shades off
    assert abs(image - 80).max() <= 4
    for asked in (("1", 5, "head"), ("9", 0, "head"), ("x", 0, "head"), ("1", 0, "none")):
        with pytest.raises(NotFound):
            picture(folder, "demos", *asked)


def test_a_torn_dataset_is_told_and_lists_nothing(folder):
    (folder / "demos/data/chunk-000/file-000.parquet").unlink()
    assert "is missing" in episode_detail(folder, "demos", "0")["problem"]
    (folder / "demos/meta/episodes/chunk-000/file-000.parquet").unlink()
    assert list_episodes(folder, "demos") == []
    (folder / "demos/meta/info.json").write_text("{")
    assert list_stores(folder, find(folder).stores) == [{"place": "demos", "episodes": 0}]


@pytest.mark.parametrize("path", ["../{chunk_index}", "/tmp/{chunk_index}"])
def test_a_dataset_that_leads_out_of_its_folder_is_not_read(folder, path):
    info = folder / "demos/meta/info.json"
    info.write_text(json.dumps(json.loads(info.read_text()) | {"data_path": path}))
    assert list_episodes(folder, "demos") == []


def test_links_in_a_dataset_are_not_followed(folder):
    data = folder / "demos/data/chunk-000/file-000.parquet"
    data.rename(folder / "elsewhere.parquet")
    data.symlink_to(folder / "elsewhere.parquet")
    assert list_episodes(folder, "demos") == []


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
        mask=np.array([[True, True, True], [True, True, False]]),
    )


@pytest.fixture
def recorded(tmp_path):
    recording(0).save(tmp_path / "run/episodes/random-0000.npz")
    recording(100).save(tmp_path / "run/episodes/random-0001.npz")
    return tmp_path


def test_recordings_are_found_and_listed_episode_by_episode(recorded):
    assert list_stores(recorded, find(recorded).stores) == [{"place": "run/episodes", "episodes": 4}]
    rows = list_episodes(recorded, "run/episodes")
    sentences = (Path(viewer.__file__).parent / "static/turn.js").read_text()
    assert all(f"  {row['ended']}: " in sentences for row in rows)
    assert [(row["id"], row["length"], row["question"], row["ended"]) for row in rows] == [
        ("random-0000.0", 3, "reach the red cube", "recorded"),
        ("random-0000.1", 2, "reach the blue cube", "broken"),
        ("random-0001.0", 3, "reach the red cube", "recorded"),
        ("random-0001.1", 2, "reach the blue cube", "broken"),
    ]


def test_a_recorded_episode_step_by_step(recorded):
    told = episode_detail(recorded, "run/episodes", "random-0001.1")
    assert [(turn["state"], turn["action"]) for turn in told["turns"]] == [([110.0], [13.75]), ([111.0], [13.875])]
    assert told["turns"][0]["cameras"] == [{"name": name, "height": 4, "width": 6} for name in ("wrist", "head")]
    image = np.asarray(PIL.Image.open(io.BytesIO(picture(recorded, "run/episodes", "random-0001.1", 1, "head"))))
    assert (image == 255 - 111).all()
    for asked in (("random-0001.1", 2), ("random-0001.9", 0), ("random-0009.0", 0), ("random-0001.x", 0), ("..", 0)):
        with pytest.raises(NotFound):
            picture(recorded, "run/episodes", *asked, "head")


def test_a_torn_file_is_left_out_and_another_ones_arrays_are_no_episodes(recorded):
    torn = recorded / "run/episodes/random-0000.npz"
    torn.write_bytes(torn.read_bytes()[:200])
    np.savez(recorded / "run/episodes/other-0000.npz", a=np.zeros(2))
    assert [row["id"] for row in list_episodes(recorded, "run/episodes")] == ["random-0001.0", "random-0001.1"]
