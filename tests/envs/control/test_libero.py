"""LIBERO through a stand-in for its package, and its real list of tasks where it is installed."""

import importlib.util
import sys

import numpy as np
import pytest

from lookact.envs.control import libero as adapter
from lookact.envs.control import suites
from lookact.envs.control.gym_control import find_control, make_gym_control
from lookact.envs.control.libero import LiberoTask, axis_angle
from lookact.errors import ConfigError, DataError

PACKAGE = {
    "__init__.py": "",
    "libero/__init__.py": """
import os
with open(os.path.join(os.environ["LIBERO_CONFIG_PATH"], "config.yaml")) as file:
    assert "bddl_files" in file.read()
def get_assets_path():
    return "nowhere"
""",
    "libero/benchmark/__init__.py": """
from types import SimpleNamespace
class Goal:
    def get_num_tasks(self): return 2
    def get_task(self, number): return SimpleNamespace(language="open the middle drawer")
    def get_task_bddl_file_path(self, number): return "a.bddl"
    def get_task_init_states(self, number): return [3.0, 4.0]
def get_benchmark_dict(): return {"libero_goal": Goal}
""",
    "libero/envs/__init__.py": """
import numpy as np
class OffScreenRenderEnv:
    def __init__(self, bddl_file_name, camera_heights, camera_widths):
        self.size = camera_heights
    def _obs(self):
        picture = np.zeros((self.size, self.size, 3), np.uint8)
        picture[0, 0] = 255
        return {"agentview_image": picture, "robot0_eye_in_hand_image": picture,
                "robot0_eef_pos": np.array([self.start, 0.0, 0.0]), "robot0_eef_quat": np.array([0.0, 0.0, 0.0, 1.0]),
                "robot0_gripper_qpos": np.array([0.04, -0.04])}
    def reset(self): return None
    def set_init_state(self, start):
        self.start, self.count = start, 0
        return self._obs()
    def step(self, action):
        self.count += 1
        return self._obs(), float(self.count > 11), False, {}
    def check_success(self): return self.count > 11
    def close(self): pass
""",
}


@pytest.fixture
def package(tmp_path, monkeypatch):
    """A package called libero, with assets, instead of any that is installed."""
    root = tmp_path / "site" / "libero"
    for name, text in PACKAGE.items():
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        (root / name).write_text(text)
    for name in adapter.NEEDED:
        (root / "libero" / "assets" / name).mkdir(parents=True)
    for name in [name for name in sys.modules if name.split(".")[0] == "libero"]:
        monkeypatch.delitem(sys.modules, name)
    monkeypatch.syspath_prepend(root.parent)
    monkeypatch.setenv("LIBERO_CONFIG_PATH", str(tmp_path / "config"))
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.delenv(adapter.ASSETS, raising=False)
    adapter.open_suite.cache_clear()
    yield root
    adapter.open_suite.cache_clear()
    for name in [name for name in sys.modules if name.split(".")[0] == "libero"]:
        del sys.modules[name]


def test_a_task_begins_where_libero_says_and_ends_with_success(package):
    env = make_gym_control("libero:libero_goal/0", cameras=("head", "wrist"), image_size=16, max_steps=9)
    shown, info = env.reset(seed=0)
    assert info["instruction"] == "open the middle drawer"
    assert env.metadata["render_fps"] == 20
    assert shown["state"].tolist()[0] in (3.0, 4.0)
    assert shown["state"].tolist()[1:] == pytest.approx([0, 0, 0, 0, 0, 0.04, -0.04])
    starts = {env.reset(seed=seed)[0]["state"][0] for seed in range(8)}
    assert starts == {3.0, 4.0}
    # ten steps of rest were taken: the second from here succeeds
    first, second = (env.step(np.zeros(7, np.float32)) for _ in range(2))
    assert (first[2], first[4]["success"]) == (False, False)
    assert (second[1], second[2], second[4]["success"]) == (1.0, True, True)
    env.close()


def test_pictures_are_turned_and_not_mirrored(package):
    task = find_control("libero:libero_goal/1").make_env()
    assert isinstance(task, LiberoTask)
    shown, _ = task.reset(seed=0)
    assert shown["head"][-1, -1].tolist() == [255, 255, 255]
    assert shown["head"].sum() == 3 * 255


def test_what_is_missing_is_one_line(package, monkeypatch):
    with pytest.raises(ConfigError, match="LIBERO has no suite libero_moon: choose one of libero_goal"):
        find_control("libero:libero_moon/0")
    with pytest.raises(ConfigError, match="its tasks are 0 to 1"):
        find_control("libero:libero_goal/2")
    (package / "libero" / "assets" / adapter.NEEDED[1]).rmdir()
    monkeypatch.setenv("HF_HUB_OFFLINE", "1")
    with pytest.raises(DataError, match=r"assets are not in .*: let it download them .* LIBERO_ASSETS"):
        find_control("libero:libero_goal/0").make_env()
    monkeypatch.setenv(adapter.ASSETS, str(package / "elsewhere"))
    with pytest.raises(DataError, match=r"elsewhere \(articulated_objects is missing\)"):
        find_control("libero:libero_goal/0").make_env()
    monkeypatch.setattr(suites, "is_installed", lambda module: False)
    with pytest.raises(ConfigError, match="needs LIBERO: pip install hf-libero"):
        find_control("libero:libero_goal/0")


def test_a_rotation_as_axis_and_angle():
    half = np.sqrt(0.5)
    assert axis_angle(np.array([0.0, 0.0, half, half])) == pytest.approx([0, 0, np.pi / 2])
    assert axis_angle(np.array([0.0, 0.0, 0.0, 1.0])) == pytest.approx([0, 0, 0])


@pytest.mark.skipif(importlib.util.find_spec("libero") is None, reason="hf-libero is absent: install it to run this")
def test_the_real_suites_have_their_tasks(tmp_path, monkeypatch):
    monkeypatch.setenv("LIBERO_CONFIG_PATH", str(tmp_path))
    assert find_control("libero:libero_goal/0").instruction == "open the middle drawer of the cabinet"
