import gymnasium
import numpy as np
import pytest
from gymnasium import spaces
from gymnasium.utils.env_checker import check_env

from dot_env import Dot
from lookact.envs.control.gym_control import ControlTask, GymControl, control_shapes, find_control, make_gym_control
from lookact.envs.wrappers.gym_rules import checked_array
from lookact.errors import ConfigError, EnvError

DOT = "dot_env:Dot"


class Plain(gymnasium.Env):
    """A vector of three numbers, drawn as one colour; actions from 0 to 10."""

    observation_space = spaces.Box(-9, 9, (3,), np.float64)
    action_space = spaces.Box(0.0, 10.0, (1,), np.float32)

    def __init__(self, render_mode=None):
        self.render_mode = render_mode

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        self.taken = []
        return np.array([1.0, 2.0, 3.0]), {}

    def step(self, action):
        self.taken.append(float(action[0]))
        return np.array([1.0, 2.0, len(self.taken)]), 0.5, False, False, {}

    def render(self):
        return np.full((20, 30, 3), 7, np.uint8) if self.render_mode == "rgb_array" else None


def test_parts_of_a_dict_become_pictures_and_a_state():
    env = make_gym_control(DOT, cameras=("image",), image_size=16, max_steps=3)
    shown, info = env.reset(seed=4)
    assert sorted(shown) == ["image", "instruction", "state"]
    assert shown["image"].shape == (16, 16, 3)
    assert shown["instruction"] == info["instruction"] == "bring the dot to the ring"
    inner = env.inner
    # in the order of the space: position, then goal
    order = [getattr(inner, name) for name in env.numbers]
    assert sorted(env.numbers) == ["goal", "position"]
    assert shown["state"].tolist() == pytest.approx(np.concatenate(order).tolist())
    before = inner.position.copy()
    env.step(np.array([1.0, -0.5], np.float32))
    assert (inner.position - before).tolist() == pytest.approx([0.2, -0.1], abs=1e-6)
    env.step(np.zeros(2, np.float32))
    assert env.step(np.zeros(2, np.float32))[3] or inner.ends
    check_env(make_gym_control(DOT, cameras=("image",)), skip_render_check=True)


def test_the_same_seed_gives_the_same_start():
    env = make_gym_control(DOT)
    one, other = (env.reset(seed=2**40 + 3)[0]["state"] for _ in range(2))
    assert (one == other).all()
    assert (one != env.reset(seed=5)[0]["state"]).any()


def test_a_plain_box_is_the_state_and_its_render_the_picture():
    task = find_control(f"{__name__}:Plain")
    env = GymControl(task, cameras={"head": "view", "wrist": "view"}, image_size=8)
    shown, _ = env.reset(seed=0)
    assert shown["state"].tolist() == [1, 2, 3]
    assert (shown["head"] == 7).all()
    assert (shown["wrist"] == shown["head"]).all()
    assert shown["instruction"] == "Plain"
    for action in (-1.0, 0.0, 1.0, 5.0):
        env.step(np.full(1, action, np.float32))
    assert env.inner.taken == [0.0, 5.0, 10.0, 10.0]


def test_success_is_told_by_info_or_by_a_function():
    at_once = ControlTask(Dot, success=lambda reward, terminated, info: reward > -9)
    env = GymControl(at_once)
    env.reset(seed=0)
    assert env.step(np.zeros(2, np.float32))[4]["success"] is True
    env = GymControl(ControlTask(Dot))
    env.reset(seed=0)
    assert env.step(np.zeros(2, np.float32))[4]["success"] is False
    env.inner.goal = env.inner.position
    _, _, terminated, _, info = env.step(np.zeros(2, np.float32))
    assert (terminated, info["success"]) == (True, True)


def test_shapes_are_found_by_trying_the_task_out():
    shapes = control_shapes(DOT, ())
    assert (shapes.cameras, shapes.state_size, shapes.action_size) == (("image",), 4, 2)
    assert shapes.instructions == ("bring the dot to the ring",)
    plain = control_shapes(f"{__name__}:Plain", (), instruction="stay")
    assert (plain.cameras, plain.state_size, plain.instructions) == (("view",), 3, ("stay",))
    with pytest.raises(ConfigError, match="Dot has no picture wrist: it has image"):
        control_shapes(DOT, ("wrist",))


def test_a_gymnasium_id_is_a_task():
    shapes = control_shapes("MountainCarContinuous-v0", (), draw=False)
    assert (shapes.state_size, shapes.action_size) == (2, 1)


class FourParts(Plain):
    def step(self, action):
        return super().step(action)[:4]


class BareReset(Plain):
    def reset(self, *, seed=None, options=None):
        return super().reset(seed=seed)[0]


class WordReward(Plain):
    def step(self, action):
        return (self.reset()[0], "much", False, False, {})


class NanReward(Plain):
    def step(self, action):
        return (self.reset()[0], float("nan"), False, False, {})


class TooFar(Plain):
    def step(self, action):
        return (np.array([1.0, 2.0, 30.0]), 0.0, False, False, {})


class TooLong(Plain):
    def step(self, action):
        return (np.zeros(4), 0.0, False, False, {})


class NotFinite(Plain):
    def reset(self, *, seed=None, options=None):
        return np.array([0.0, np.inf, 0.0]), {}


class Blind(Plain):
    def render(self):
        return None


class Unbounded(Plain):
    action_space = spaces.Box(-np.inf, np.inf, (1,), np.float32)


class Choices(Plain):
    observation_space = spaces.Dict({"place": spaces.Discrete(3)})


class Raises(Plain):
    def reset(self, *, seed=None, options=None):
        raise RuntimeError("the robot\nis off")


@pytest.mark.parametrize(
    ("name", "line"),
    [
        ("FourParts", "FourParts.step() gave 4 values: return (observation, reward, terminated, truncated, info)"),
        ("BareReset", "BareReset.reset() gave a ndarray: return (observation, info), info a dict"),
        ("WordReward", "WordReward.step() gave the reward 'much': give a finite number"),
        ("NanReward", "NanReward.step() gave the reward nan: give a finite number"),
        ("TooFar", "TooFar's state lies in 1 to 30, its space in -9 to 9: widen the space"),
        ("TooLong", "TooLong's state has shape (4,), its space (3,): make them agree"),
        ("NotFinite", "NotFinite's state holds numbers that are not finite"),
        ("Blind", 'render() gave no (h, w, 3) uint8 picture: make the environment with render_mode="rgb_array"'),
        ("Unbounded", "Unbounded has actions of Box(-inf, inf, (1,), float32): a control task has a Box with finite"),
        ("Choices", "Choices's observation place is Discrete(3): make it a Box, or a Dict of Boxes"),
        ("Raises", "does not run: RuntimeError: the robot is off"),
        ("NO_TASK", "is no control task but a int: name a class of environments"),
        ("ONE", "is no control task but a Plain: name a class of environments"),
    ],
)
def test_what_breaks_the_rules_is_one_line(name, line):
    with pytest.raises(ConfigError) as caught:
        control_shapes(f"{__name__}:{name}", ())
    assert line in str(caught.value)
    assert "\n" not in str(caught.value)


NO_TASK, ONE = 3, Plain()


def test_rounding_is_not_held_against_an_environment():
    box = spaces.Box(-1, 1, (2,), np.float32)
    assert checked_array([1.0000001, -1.0], box, "state", bounds=True).dtype == np.float32
    with pytest.raises(EnvError, match="widen the space"):
        checked_array([1.1, 0.0], box, "state", bounds=True)
