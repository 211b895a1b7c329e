import io
import json

import numpy as np
import PIL.Image
import pytest

from lookact.data.lerobot.read import Demonstration
from lookact.data.lerobot.write import write_demonstrations
from lookact.viewer.episodes import episode_detail, list_episodes, list_stores, picture
from lookact.viewer.places import NotHere, find


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
        with pytest.raises(NotHere):
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
