"""LeRobot's own class opens what is written here, and what it writes is read here; run where lerobot is installed."""

import importlib.util

import numpy as np
import pytest

from lookact.data.lerobot.read import Demonstration, Wanted, read_demonstrations
from lookact.data.lerobot.write import write_demonstrations

pytestmark = pytest.mark.skipif(
    importlib.util.find_spec("lerobot") is None, reason="lerobot is absent: pip install lerobot in a copy of .venv"
)
CAMERAS = ("head", "wrist")


@pytest.fixture(scope="module")
def demos():
    rng = np.random.default_rng(0)
    return [
        Demonstration(
            task=f"put the cube on stand {number}",
            images={camera: rng.integers(0, 255, (length, 64, 64, 3), np.uint8) for camera in CAMERAS},
            states=rng.normal(size=(length, 11)).astype(np.float32),
            actions=rng.uniform(-1, 1, (length, 4)).astype(np.float32),
        )
        for number, length in enumerate((5, 7))
    ]


def test_lerobots_class_opens_what_is_written_here(demos, tmp_path):
    from lerobot.datasets.lerobot_dataset import LeRobotDataset

    write_demonstrations(tmp_path / "set", demos, fps=10, robot="arm")
    opened = LeRobotDataset("local/set", root=tmp_path / "set", video_backend="pyav")
    assert (len(opened), opened.num_episodes, opened.fps) == (12, 2, 10)
    step = opened[5 + 3]
    assert step["task"] == demos[1].task
    assert np.array_equal(step["observation.state"], demos[1].states[3])
    assert np.array_equal(step["action"], demos[1].actions[3])
    picture = step["observation.images.wrist"].permute(1, 2, 0).numpy() * 255
    # noise is the hardest picture for the codec; another frame of it would be far off
    assert np.abs(picture - demos[1].images["wrist"][3]).mean() < 4


def test_what_lerobot_writes_is_read_here(demos, tmp_path):
    from lerobot.datasets.lerobot_dataset import LeRobotDataset

    number = {"dtype": "float32", "names": None}
    features = {"observation.state": {**number, "shape": (11,)}, "action": {**number, "shape": (4,)}}
    picture = {"dtype": "image", "shape": (64, 64, 3), "names": ["height", "width", "channels"]}
    features |= {f"observation.images.{name}": picture for name in ("top", "hand")}
    writer = LeRobotDataset.create("local/w", fps=10, features=features, root=tmp_path / "w", use_videos=False)
    for demo in demos:
        for step in range(len(demo)):
            frame = {"observation.state": demo.states[step], "action": demo.actions[step], "task": demo.task}
            frame |= {
                f"observation.images.{name}": demo.images[own][step] for name, own in zip(("top", "hand"), CAMERAS)
            }
            writer.add_frame(frame)
        writer.save_episode()
    writer.finalize()
    found = list(read_demonstrations(tmp_path / "w", Wanted(CAMERAS, 11, 4, renames={"top": "head", "hand": "wrist"})))
    for demo, original in zip(found, demos, strict=True):
        assert demo.task == original.task
        assert np.array_equal(demo.actions, original.actions)
        assert np.array_equal(demo.states, original.states)
        assert all(np.array_equal(demo.images[camera], original.images[camera]) for camera in CAMERAS)
