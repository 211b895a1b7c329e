"""LIBERO's tasks (arXiv:2306.03310) from the package hf-libero as Gymnasium environments, with its own starts.

Observations are the pictures `head` and `wrist` and a `state` (8,): the tool's place, its rotation as axis and angle,
and both fingers, as openpi's and LeRobot's LIBERO data have them; pictures are turned by 180 degrees, as there.
"""

from __future__ import annotations

import functools
import importlib.util
import json
import os
from pathlib import Path
from typing import Any

import gymnasium
import numpy as np
from gymnasium import spaces
from numpy.typing import NDArray

from lookact.errors import ConfigError, DataError
from lookact.types import Image

ASSETS = "LIBERO_ASSETS"
"""Environment variable: a folder with LIBERO's meshes and textures, where they can't be downloaded."""
NEEDED = ("articulated_objects", "stable_scanned_objects", "turbosquid_objects", "stable_hope_objects")
"""Folders without which no scene is built."""
CAMERAS = {"head": "agentview_image", "wrist": "robot0_eye_in_hand_image"}
STATE_SIZE, ACTION_SIZE = 8, 7
RATE = 20
"""Decisions a second."""
SETTLE = 10
"""Steps in which what was put down comes to rest, as in LIBERO's own evaluation."""
Shown = dict[str, Any]


class LiberoTask(gymnasium.Env[Shown, NDArray[np.float32]]):
    """`inner` is LIBERO's OffScreenRenderEnv; an episode's seed chooses among the task's own starts.

    It terminates on success, with a reward of 1; actions (7,) are the tool's way, its turn, and the fingers.
    """

    metadata = {"render_modes": ["rgb_array"], "render_fps": RATE}  # noqa: RUF012

    def __init__(self, inner: Any, starts: Any, *, image_size: int) -> None:
        self.inner, self.starts, self.render_mode = inner, starts, "rgb_array"
        image = spaces.Box(0, 255, (image_size, image_size, 3), np.uint8)
        state = spaces.Box(-np.inf, np.inf, (STATE_SIZE,), np.float32)
        self.observation_space = spaces.Dict({**dict.fromkeys(CAMERAS, image), "state": state})
        self.action_space = spaces.Box(-1.0, 1.0, (ACTION_SIZE,), np.float32)

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[Shown, dict[str, Any]]:
        super().reset(seed=seed)
        self.inner.reset()
        self._raw = self.inner.set_init_state(self.starts[int(self.np_random.integers(len(self.starts)))])
        for _ in range(SETTLE):
            # still, with the fingers open
            self._raw, *_ = self.inner.step(np.array([0.0] * 6 + [-1.0]))
        return self._shown(), {"success": False}

    def step(self, action: NDArray[np.float32]) -> tuple[Shown, float, bool, bool, dict[str, Any]]:
        self._raw, reward, _, _ = self.inner.step(np.asarray(action, np.float64))
        success = bool(self.inner.check_success())
        return self._shown(), float(reward), success, False, {"success": success}

    def render(self) -> Image:
        return turned(self._raw[CAMERAS["head"]])

    def close(self) -> None:
        self.inner.close()

    def _shown(self) -> Shown:
        raw = self._raw
        parts = raw["robot0_eef_pos"], axis_angle(raw["robot0_eef_quat"]), raw["robot0_gripper_qpos"]
        pictures = {name: turned(raw[key]) for name, key in CAMERAS.items()}
        return {**pictures, "state": np.concatenate(parts).astype(np.float32)}


def make_task(suite: str, number: int, *, image_size: int = 128) -> LiberoTask:
    """A task of a suite by its number; its assets must be here."""
    tasks = open_suite(suite, number)
    find_assets()
    from libero.libero.envs import OffScreenRenderEnv

    size = {"camera_heights": image_size, "camera_widths": image_size}
    inner = OffScreenRenderEnv(bddl_file_name=tasks.get_task_bddl_file_path(number), **size)
    return LiberoTask(inner, tasks.get_task_init_states(number), image_size=image_size)


def task_instruction(suite: str, number: int) -> str:
    return str(open_suite(suite, number).get_task(number).language)


@functools.cache
def open_suite(suite: str, number: int) -> Any:
    """LIBERO's suite of that name, which has a task of that number."""
    configure()
    from libero.libero.benchmark import get_benchmark_dict

    known = get_benchmark_dict()
    if suite not in known:
        raise ConfigError(f"LIBERO has no suite {suite}: choose one of {', '.join(sorted(known))}")
    tasks = known[suite]()
    if number >= tasks.get_num_tasks():
        raise ConfigError(f"libero:{suite}/{number}: its tasks are 0 to {tasks.get_num_tasks() - 1}")
    return tasks


def configure() -> None:
    """Write LIBERO's file of paths where it has none: its import would ask for them on the terminal."""
    folder = Path(os.environ.get("LIBERO_CONFIG_PATH", Path.home() / ".libero"))
    if (folder / "config.yaml").exists():
        return
    root = package_folder()
    paths = {"benchmark_root": root, "bddl_files": root / "bddl_files", "init_states": root / "init_files"}
    paths |= {"datasets": root.parent / "datasets", "assets": root / "assets"}
    folder.mkdir(parents=True, exist_ok=True)
    # JSON is YAML
    (folder / "config.yaml").write_text(json.dumps({name: str(path) for name, path in paths.items()}), "utf-8")


def find_assets() -> None:
    """Tell LIBERO where its assets are: a folder of the user's, its own, or what it can download."""
    import libero.libero

    given = os.environ.get(ASSETS)
    places = [Path(given)] if given else [package_folder() / "assets", Path.home() / ".cache" / "libero" / "assets"]
    found = next((place for place in places if not _absent(place)), None)
    if found is None and not given and not os.environ.get("HF_HUB_OFFLINE"):
        found = Path(libero.libero.get_assets_path())
    if found is None or _absent(found):
        where = found or places[-1]
        remedy = f"let it download them with a network, or name a folder of them in {ASSETS}"
        raise DataError(f"LIBERO's assets are not in {where} ({_absent(where)} is missing): {remedy}")
    libero.libero._assets_path_cache = str(found)


def package_folder() -> Path:
    """Where LIBERO's files are, found without importing it."""
    spec = importlib.util.find_spec("libero")
    if spec is None or not spec.submodule_search_locations:
        raise ConfigError("LIBERO is not installed: pip install hf-libero")
    return Path(next(iter(spec.submodule_search_locations))) / "libero"


def turned(picture: Image) -> Image:
    """By 180 degrees: robosuite's pictures stand on their heads, and published data is turned, not mirrored."""
    return np.ascontiguousarray(picture[::-1, ::-1])


def axis_angle(quaternion: NDArray[np.floating[Any]]) -> NDArray[np.float64]:
    """(4,) x, y, z, w -> (3,) the axis times the angle, which lies in 0 to 2 pi."""
    *axis, real = np.asarray(quaternion, np.float64)
    length = float(np.linalg.norm(axis))
    if length < 1e-8:
        return np.zeros(3)
    return np.array(axis) / length * 2.0 * float(np.arctan2(length, real))


def _absent(folder: Path) -> str:
    """The first needed folder that is not there, "" where all are."""
    return next((name for name in NEEDED if not (folder / name).is_dir()), "")
