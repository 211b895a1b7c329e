import gymnasium
import numpy as np
import pytest
from gymnasium.utils.env_checker import check_env

import lookact.envs  # noqa: F401
from lookact.envs.tabletop.env import Tabletop
from lookact.envs.tabletop.two_arms import SECOND_START, TwoArms

SETTINGS = {"task": "reach", "control": "delta_qpos", "image_size": 32, "terminate_on_success": False}
STAY = np.array([0, 0, 0, 0, 0, 0, 0, 1], np.float32)


@pytest.fixture(scope="module")
def env():
    env = TwoArms(**SETTINGS)
    yield env
    env.close()


def run(env, *actions):
    shown, _ = env.reset(seed=4)
    states = [shown["state"]]
    for action in actions:
        shown, *_ = env.step(np.concatenate(action).astype(np.float32))
        states.append(shown["state"])
    return states, shown


def test_it_keeps_gymnasiums_rules():
    env = gymnasium.make("lookact/TwoArms-v0", image_size=16, control="delta_qpos", max_steps=5)
    check_env(env.unwrapped, skip_render_check=True)
    assert env.action_space.shape == (16,)
    assert env.observation_space["state"].shape == (22,)
    env.close()


def test_the_second_tool_begins_where_the_table_has_it(env):
    state = run(env)[0][0]
    # the arm stands at (0.5, 0.62) and its forward is the table's -y
    assert state[19:22] == pytest.approx([0.5, 0.62 - SECOND_START[0], SECOND_START[2]], abs=0.003)
    assert state[18] == 1.0


def test_each_half_of_an_action_moves_its_own_arm(env):
    turn = STAY.copy()
    turn[0] = 1.0
    still, _ = run(env, *[(STAY, STAY)] * 4)
    first, _ = run(env, *[(turn, STAY)] * 4)
    second, _ = run(env, *[(STAY, turn)] * 4)
    # the first joint, of up to 0.08 radians a step
    assert first[-1][0] - still[-1][0] > 0.2
    assert first[-1][11:] == pytest.approx(still[-1][11:], abs=1e-3)
    assert second[-1][11] - still[-1][11] > 0.2
    assert second[-1][:11] == pytest.approx(still[-1][:11], abs=1e-3)


def test_each_gripper_closes_by_its_own_number(env):
    close = STAY.copy()
    close[7] = -1.0
    states, _ = run(env, *[(STAY, close)] * 6)
    assert states[-1][7] == pytest.approx(1.0, abs=0.05)
    assert states[-1][18] < 0.1


def test_the_first_arm_moves_as_on_the_table_alone(env):
    rng = np.random.default_rng(0)
    actions = rng.uniform(-1, 1, (6, 8)).astype(np.float32)
    alone = Tabletop(**SETTINGS)
    shown, _ = alone.reset(seed=4)
    wanted = [shown["state"]]
    for action in actions:
        wanted.append(alone.step(action)[0]["state"])
    alone.close()
    found, _ = run(env, *[(action, STAY) for action in actions])
    assert np.stack(found)[:, :11] == pytest.approx(np.stack(wanted), abs=1e-4)


def test_the_head_camera_shows_the_second_arm(env):
    _, after = run(env)
    alone = Tabletop(**SETTINGS)
    shown, _ = alone.reset(seed=4)
    alone.close()
    different = (after["head"] != shown["head"]).any(axis=2)
    # at the right edge, where the arm stands
    assert different[:, 16:].sum() > 20
    assert different[:, :16].sum() < 5


def test_the_second_arm_touches_objects_too(env):
    env.reset(seed=4)
    data, model = env.table.data, env.table.model
    address = model.joint("object0").qposadr[0]
    data.qpos[address : address + 3] = data.site_xpos[env._tool]
    *_, info = env.step(np.concatenate([STAY, STAY * np.array([1] * 7 + [-1], np.float32)]))
    for _ in range(3):
        *_, info = env.step(np.concatenate([STAY, STAY * np.array([1] * 7 + [-1], np.float32)]))
        data.qpos[address : address + 3] = data.site_xpos[env._tool]
        data.qvel[:] = 0
    assert info["contact"]


def test_the_expert_solves_the_task_by_the_first_arm():
    env = TwoArms(**SETTINGS | {"terminate_on_success": True, "control": "ee_delta"})
    env.reset(seed=1)
    for _ in range(30):
        _, _, terminated, _, info = env.step(env.expert_action())
        if terminated:
            break
    assert info["success"]
    env.close()
