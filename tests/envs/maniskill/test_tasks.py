"""ManiSkill's batched tensors through a stand-in, and the real PickCube and PushCube where they are installed."""

import importlib.util
import types

import gymnasium
import numpy as np
import pytest
import torch
from gymnasium import spaces

from lookact.envs.control import suites
from lookact.envs.control.gym_control import find_control, make_gym_control
from lookact.envs.maniskill.tasks import ManiSkillTask, instruction_of, pick, pull, push, split
from lookact.errors import ConfigError

real = pytest.mark.skipif(
    importlib.util.find_spec("mani_skill") is None, reason="ManiSkill is absent: `make test-maniskill` runs this"
)


class Batched(gymnasium.Env):
    """One scene as ManiSkill shows it: everything has a batch axis."""

    control_freq = 20
    single_action_space = spaces.Box(-1.0, 1.0, (4,), np.float32)
    action_space = single_action_space

    def _shown(self):
        return {
            "agent": {"qpos": torch.arange(2.0)[None], "qvel": torch.zeros(1, 2)},
            "extra": {"is_grasped": torch.tensor([True]), "goal_pos": torch.tensor([[0.1, 0.2, 0.3]])},
            "sensor_data": {"base_camera": {"rgb": torch.full((1, 8, 8, 3), 7, dtype=torch.uint8)}},
            "sensor_param": {"base_camera": {}},
        }

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        return self._shown(), {}

    def step(self, action):
        won = torch.tensor([bool(action[3] > 0)])
        return self._shown(), torch.tensor([0.25]), won, torch.tensor([False]), {"success": won}


def test_a_batch_of_one_becomes_a_plain_environment():
    env = ManiSkillTask(Batched())
    shown, info = env.reset(seed=1)
    assert shown["state"].tolist() == pytest.approx([0, 1, 0, 0, 1, 0.1, 0.2, 0.3])
    assert env.observation_space.contains(shown)
    assert (info["success"], env.metadata["render_fps"]) == (False, 20)
    _, reward, terminated, truncated, info = env.step(np.array([0, 0, 0, 1], np.float32))
    # it goes on after success: its reward for staying there is positive
    assert (reward, terminated, truncated, info["success"]) == (0.25, False, False, True)
    assert env.render().shape == (8, 8, 3)


def test_without_numbers_the_state_is_one_zero():
    pictures, state = split({})
    assert (pictures, state.tolist()) == ({}, [0.0])


def test_a_goal_is_told_in_words_and_a_name_by_its_capitals():
    assert instruction_of("PickCube-v1") == "pick up the red cube and hold it at the goal"
    assert instruction_of("StackCube-v1") == "stack cube"


@pytest.mark.parametrize(("expert", "goal"), [(push, [0.2, 0.0, 0.0]), (pull, [-0.2, 0.0, 0.0])])
def test_a_cube_is_shoved_to_its_goal_from_the_right_side(expert, goal):
    thing, tool = np.array([0.02, 0.03, 0.02]), np.array([-0.05, 0.0, 0.15])
    goal = np.array(goal)
    goal[1] = thing[1]
    for _ in range(60):
        moved = tool + 0.1 * expert(thing, goal, tool, 0.0)[:3]
        # the tool takes the cube along by what it comes nearer than 2.5 cm
        if moved[2] < 0.05 and abs(moved[1] - thing[1]) < 0.02 and abs(moved[0] - thing[0]) < 0.025:
            thing[0] += np.sign(goal[0]) * (0.025 - abs(moved[0] - thing[0]))
        tool = moved
    assert np.linalg.norm((thing - goal)[:2]) < 0.02


def test_a_cube_is_taken_and_held_at_its_goal():
    thing, tool, opening = np.array([0.05, -0.06, 0.02]), np.array([-0.1, 0.1, 0.2]), 0.08
    goal = np.array([-0.03, 0.04, 0.2])
    for _ in range(40):
        step = pick(thing, goal, tool, opening)
        if step[3] < 0 and np.linalg.norm(tool - thing) < 0.02:
            opening = max(0.04, opening - 0.02)
        carried = opening <= 0.04
        tool = tool + 0.1 * step[:3]
        thing = tool.copy() if carried else thing
    assert np.linalg.norm(thing - goal) < 0.01


def test_a_suites_name_without_the_package_is_one_line(monkeypatch):
    monkeypatch.setattr(suites, "is_installed", lambda module: False)
    with pytest.raises(
        ConfigError, match=r"maniskill:PickCube-v1 needs mani_skill: pip install 'lookact\[maniskill\]'"
    ):
        find_control("maniskill:PickCube-v1")


def test_an_expert_is_given_the_scene(monkeypatch):
    monkeypatch.setattr(suites, "is_installed", lambda module: True)
    task = find_control("maniskill:PushCube-v1")
    at = lambda *place: types.SimpleNamespace(pose=types.SimpleNamespace(p=torch.tensor([place])))  # noqa: E731
    robot = types.SimpleNamespace(get_qpos=lambda: torch.zeros(1, 9))
    agent = types.SimpleNamespace(tcp=at(0.0, 0.0, 0.2), robot=robot)
    scene = types.SimpleNamespace(obj=at(0.05, 0.0, 0.02), goal_region=at(0.25, 0.0, 0.0), agent=agent)
    env = types.SimpleNamespace(unwrapped=types.SimpleNamespace(inner=types.SimpleNamespace(unwrapped=scene)))
    # down to beside the cube: 5 cm before it, at its height
    assert task.expert(env, None).tolist() == pytest.approx([0.0, 0.0, -1.0, -1.0], abs=1e-6)
    assert find_control("maniskill:StackCube-v1").expert is None


@real
@pytest.mark.slow
@pytest.mark.parametrize("task", ["PickCube-v1", "PushCube-v1"])
def test_the_real_task_is_solved_by_its_expert(task):
    env = make_gym_control(f"maniskill:{task}", cameras=("base_camera",), image_size=64, max_steps=50)
    solved = []
    for seed in range(4):
        env.reset(seed=seed)
        over, info = False, {}
        while not over:
            _, _, terminated, truncated, info = env.step(env.expert_action())
            over = terminated or truncated
        solved.append(info["success"])
    env.close()
    assert sum(solved) >= 3
