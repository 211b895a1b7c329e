import numpy as np
import pytest

from lookact.envs.control import suites
from lookact.envs.control.gym_control import ControlTask, GymControl, find_control, make_gym_control
from lookact.envs.control.suites import SuccessOnce, suite_task
from lookact.errors import ConfigError
from lookact.recipes.vla_ppo.config import EnvConfig

from dot_env import Dot  # isort: skip


def test_other_names_are_no_suite():
    assert suite_task("dot_env:Dot") is None
    assert suite_task("Reacher-v5") is None
    # a Gymnasium id that the module registers
    assert suite_task("metaworld:Meta-World/MT1") is None


def test_a_task_of_metaworld_has_its_words_and_is_solved_by_its_expert():
    env = make_gym_control("metaworld:button-press-v3", cameras=("view",), image_size=32, max_steps=40)
    shown, info = env.reset(seed=3)
    assert info["instruction"] == "push the blue button into the box"
    assert shown["view"].shape == (32, 32, 3)
    assert shown["state"].shape == (39,)
    told = []
    while not env._over:
        action = env.expert_action()
        assert action.shape == (4,)
        assert np.abs(action).max() <= 1
        *_, info = env.step(action)
        told.append(info["success"])
    # told once, kept until the end, and the episode goes on
    assert len(told) == 40
    assert told == sorted(told)
    assert told[-1]
    env.reset(seed=3)
    assert not env.step(np.zeros(4, np.float32))[-1]["success"]
    env.close()


def test_demonstrations_are_recorded_at_the_tasks_own_rate():
    # 80 simulator steps a second, 3 a decision
    assert EnvConfig(task="metaworld:door-close-v3").rate == 27
    assert EnvConfig(task="push").rate == 10


def test_a_task_without_a_view_is_told_by_its_name():
    assert find_control("metaworld:door-close-v3").instruction == "door close"


def test_a_wrong_name_and_a_missing_package_are_one_line(monkeypatch):
    with pytest.raises(ConfigError, match="did you mean button-press-v3"):
        find_control("metaworld:buton-press-v3")
    monkeypatch.setattr(suites, "is_installed", lambda module: False)
    with pytest.raises(ConfigError, match=r"metaworld:reach-v3 needs metaworld: pip install 'lookact\[robot\]'"):
        find_control("metaworld:reach-v3")


def test_success_is_kept_for_an_episode():
    class Flicker(Dot):
        def step(self, action):
            *rest, _ = super().step(action)
            self.count = getattr(self, "count", 0) + 1
            return *rest, {"success": self.count == 2}

    env = SuccessOnce(Flicker())
    env.reset(seed=0)
    told = [env.step(env.action_space.sample())[-1]["success"] for _ in range(3)]
    env.reset(seed=0)
    assert [*told, env.step(env.action_space.sample())[-1]["success"]] == [False, True, True, False]


def test_an_experts_action_is_scaled_to_the_unit_range():
    # the dot moves by 0.2 at most: half of that is 0.5, more than that is cut off
    low, high = Dot().action_space.low, Dot().action_space.high
    wanted = np.array([high[0] / 2, 5 * low[1]], np.float32)
    env = GymControl(ControlTask(Dot, expert=lambda inner, shown: wanted))
    env.reset(seed=0)
    assert env.expert_action() == pytest.approx([0.5, -1.0])
    with pytest.raises(ConfigError, match="has no expert"):
        GymControl(ControlTask(Dot)).expert_action()
