"""The real SAPIEN: run by `make test-maniskill`."""

import importlib.util
import os
import subprocess
import sys

import gymnasium
import numpy as np
import pytest
from gymnasium.utils.env_checker import check_env

import lookact.envs  # noqa: F401  registers the environment
from lookact.envs.maniskill.env import ManiSkillTable
from lookact.envs.tabletop.env import Tabletop
from lookact.envs.tabletop.randomise import Randomisation
from lookact.errors import EnvError

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(
        importlib.util.find_spec("mani_skill") is None, reason="ManiSkill is absent: `make test-maniskill` runs this"
    ),
]
SIZE = 64
CLEARLY_VISIBLE = Randomisation(appearance=False)
ALL = Randomisation(appearance=True, background=True, light=True, camera=True, clutter=True)


@pytest.fixture
def make():
    """Makes environments of one size, closed after the test."""
    made = []

    def one(**settings) -> ManiSkillTable:
        made.append(ManiSkillTable(**({"image_size": SIZE} | settings)))
        return made[-1]

    yield one
    for env in made:
        env.close()


@pytest.fixture(scope="module")
def plain():
    """A table with a red cube and nothing else, for tests that leave it as good as new."""
    env = ManiSkillTable(image_size=SIZE, randomise=CLEARLY_VISIBLE, max_steps=1000)
    yield env
    env.close()


def roll(env: gymnasium.Env, actions: np.ndarray, **begin) -> list[dict]:
    """Every observation of an episode."""
    return [env.reset(**begin)[0], *(env.step(action)[0] for action in actions)]


def random_actions(count: int) -> np.ndarray:
    return np.random.default_rng(1).uniform(-1, 1, (count, 8)).astype(np.float32)


def turn(joint: int, count: int, opening: float = 1.0) -> np.ndarray:
    """Actions that turn one joint as fast as it goes."""
    actions = np.zeros((count, 8), np.float32)
    actions[:, joint], actions[:, 7] = 1.0, opening
    return actions


def assert_same(first: list[dict], second: list[dict]) -> None:
    for one, other in zip(first, second, strict=True):
        assert all(np.array_equal(one[name], other[name]) for name in one)


def changed(one: np.ndarray, other: np.ndarray, by: int = 6) -> float:
    """The share of pixels that differ visibly."""
    return float((np.abs(one.astype(int) - other).max(axis=-1) > by).mean())


def middle_of_red(picture: np.ndarray) -> np.ndarray:
    """Row and column of the red cube's middle."""
    red, green, blue = picture.astype(int).transpose(2, 0, 1)
    found = np.argwhere((red > 90) & (red > 2 * green) & (red > 2 * blue))
    assert len(found) > 3
    return found.mean(axis=0)


def test_gymnasium_finds_nothing_wrong(recwarn):
    env = gymnasium.make("lookact/ManiSkill-v0", image_size=32, render_mode="rgb_array").unwrapped
    check_env(env)
    env.close()
    assert [str(warning.message) for warning in recwarn if "gymnasium" in str(warning.filename)] == []


@pytest.mark.parametrize("control", ["delta_qpos", "ee_delta"])
def test_it_shows_and_takes_what_the_mujoco_table_does(make, control):
    env, table = make(control=control), Tabletop(task="reach", control=control, image_size=SIZE)
    assert env.observation_space == table.observation_space
    assert env.action_space == table.action_space


def test_the_same_seeds_are_the_same_scene_in_both_simulators(make):
    settings = {"image_size": SIZE, "randomise": CLEARLY_VISIBLE}
    env, table = make(randomise=CLEARLY_VISIBLE), Tabletop(task="reach", control="delta_qpos", **settings)
    for seed in range(3):
        shown, expected = env.reset(seed=seed)[0], table.reset(seed=seed)[0]
        assert shown["instruction"] == expected["instruction"]
        assert shown["state"] == pytest.approx(expected["state"], abs=1e-5)
        # a red cube, seen by cameras at the same places
        for camera in ("head", "wrist"):
            assert middle_of_red(shown[camera]) == pytest.approx(middle_of_red(expected[camera]), abs=1.5)
    table.close()


def test_same_seed_same_episode_whatever_was_before(make):
    actions = random_actions(10)
    first, second = make(randomise=ALL, distractors=2), make(randomise=ALL, distractors=2)
    expected = roll(first, actions, seed=5)
    assert_same(expected, roll(first, actions, seed=5))
    roll(second, actions, seed=9)
    assert_same(expected, roll(second, actions, seed=5))


def test_a_scene_is_kept_while_episodes_ask_for_it_and_a_kept_one_is_as_good_as_new(make):
    env, actions = make(randomise=ALL, distractors=1), random_actions(8)
    fresh = roll(env, actions, options={"scene_seed": 1, "start_seed": 4})
    scene = env.simulation.scene
    other = roll(env, actions, options={"scene_seed": 1, "start_seed": 5})
    kept = roll(env, actions, options={"scene_seed": 1, "start_seed": 4})
    assert env.simulation.scene is scene
    assert_same(fresh, kept)
    assert not np.array_equal(other[0]["head"], fresh[0]["head"])
    env.reset(options={"scene_seed": 2, "start_seed": 4})
    assert env.simulation.scene is not scene


def test_images_change_with_the_arms_motion_and_only_with_it(plain):
    still = roll(plain, turn(0, 12) * np.eye(8, dtype=np.float32)[7], seed=0)
    moved = roll(plain, turn(0, 12), seed=0)
    assert moved[-1]["state"][0] - moved[0]["state"][0] == pytest.approx(12 * 0.08, abs=0.1)
    for camera, least in (("head", 0.05), ("wrist", 0.3)):
        assert changed(still[0][camera], still[-1][camera]) < 0.002
        assert changed(moved[0][camera], moved[-1][camera]) > least
        # and from step to step
        assert changed(moved[2][camera], moved[3][camera]) > least / 3
    # turned to its left, which is the right side of who looks at it from the front
    assert moved[-1]["state"][9] > 0.25
    assert still[-1]["state"] == pytest.approx(still[0]["state"], abs=2e-3)


def test_the_gripper_opens_and_closes(plain):
    closed = roll(plain, turn(0, 8, opening=-1.0) * np.eye(8, dtype=np.float32)[7], seed=0)[-1]
    opened = roll(plain, turn(0, 8) * np.eye(8, dtype=np.float32)[7], seed=0)[-1]
    assert closed["state"][7] == pytest.approx(0.0, abs=0.02)
    assert opened["state"][7] == pytest.approx(1.0, abs=0.02)
    assert changed(closed["wrist"], opened["wrist"]) > 0.02


def test_what_the_arm_runs_into_is_pushed_away(make):
    env = make(control="ee_delta", randomise=CLEARLY_VISIBLE, max_steps=60)
    env.reset(seed=0)
    x, y = env.start.objects[0, :2]
    before = env.simulation.objects[0].pose.p[0].numpy().copy()
    for spot in ((x - 0.08, y, 0.03), (x + 0.06, y, 0.03)):
        for _ in range(14):
            env.step(env.controller.action_towards(np.array(spot), 0.0))
    moved = env.simulation.objects[0].pose.p[0].numpy() - before
    assert moved[0] > 0.03
    assert abs(moved[2]) < 0.02


@pytest.mark.parametrize("side", ["appearance", "background", "light", "clutter", "camera"])
def test_each_side_of_a_scene_differs_only_where_it_is_asked_to(make, plain, side):
    def two(env):
        return [env.reset(options={"scene_seed": seed, "start_seed": 0})[0]["head"] for seed in (1, 2)]

    assert np.array_equal(*two(plain))
    assert not np.array_equal(*two(make(randomise=Randomisation(**({"appearance": False} | {side: True})))))


def test_an_episode_ends_after_its_steps_and_never_by_itself(make):
    env = make(max_steps=2, image_size=16)
    env.reset(seed=0)
    steps = [env.step(np.zeros(8, np.float32)) for _ in range(2)]
    assert [step[1:4] for step in steps] == [(0.0, False, False), (0.0, False, True)]
    with pytest.raises(EnvError, match="call reset"):
        env.step(np.zeros(8, np.float32))


def test_an_action_that_is_no_number_moves_nothing_and_is_marked(plain):
    shown, _ = plain.reset(seed=0)
    after, *_, info = plain.step(np.full(8, np.nan, np.float32))
    assert not info["valid_action"]
    assert after["state"] == pytest.approx(shown["state"], abs=2e-3)


def run(code: str, **variables: str) -> subprocess.CompletedProcess[str]:
    environment = {**os.environ, **variables}
    return subprocess.run([sys.executable, "-c", code], env=environment, capture_output=True, text=True, check=False)


def test_without_a_driver_one_line_says_what_is_missing(tmp_path):
    code = "from lookact.envs.maniskill.env import ManiSkillTable; ManiSkillTable()"
    nowhere = str(tmp_path / "none.json")
    done = run(code, VK_ICD_FILENAMES=nowhere, VK_DRIVER_FILES=nowhere, LD_LIBRARY_PATH="")
    told = done.stderr.strip().splitlines()[-1]
    assert "Warning" not in done.stderr
    assert "EnvError: no Vulkan driver here that SAPIEN can draw with" in told
    assert "make test-maniskill" in told


TWO_GPUS = """
import os, sys, torch
torch.cuda.device_count = lambda: 2
from lookact.envs.maniskill.device import prepare
"""
WATCH = """
class Watch:
    def find_spec(self, name, path=None, target=None):
        if name == "sapien":
            print([os.environ.get(name) for name in ("VK_DEVICE_INDEX", "SAPIEN_DEVICE_INDEX", "EGL_DEVICE_ID")])
sys.meta_path.insert(0, Watch())
print(prepare())
"""


def test_drivers_know_the_gpu_before_sapien_is_imported():
    done = run(TWO_GPUS + WATCH, LOCAL_RANK="1", CUDA_VISIBLE_DEVICES="3,5")
    # the first look is for whether it is installed, the second is the import
    assert done.stdout.split("\n")[-3:-1] == ["['5', '5', '5']", "cuda:1"]


def test_sapien_imported_before_the_choice_is_an_error():
    done = run(TWO_GPUS + "import sapien\nprepare()", LOCAL_RANK="1", CUDA_VISIBLE_DEVICES="3,5")
    assert "EnvError: sapien was imported before GPU 5 was chosen" in done.stderr.strip().splitlines()[-1]
