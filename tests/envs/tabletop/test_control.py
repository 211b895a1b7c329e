import mujoco
import numpy as np
import pytest

from lookact.envs.tabletop.arm import HOME
from lookact.envs.tabletop.control import HIGH, LOW, REACH_HIGH, STEP_METRES, STEP_RADIANS, Controller, Kinematics, pad
from lookact.envs.tabletop.scene import Layout, build_model
from lookact.errors import ConfigError

MODEL = build_model(Layout())


def test_solve_finds_joints_that_put_the_tool_there_fingers_down():
    kinematics = Kinematics(MODEL)
    for wanted in ([0.5, 0.0, 0.2], [0.4, 0.2, 0.05], [0.65, -0.2, 0.1]):
        joints = kinematics.solve(HOME, np.array(wanted), 60)
        data = mujoco.MjData(MODEL)
        data.qpos[:7] = joints
        mujoco.mj_kinematics(MODEL, data)
        assert np.allclose(data.site("tool").xpos, wanted, atol=1e-3)
        assert np.allclose(data.site("tool").xmat.reshape(3, 3), np.diag([1, -1, -1]), atol=0.02)
        assert np.all((joints >= LOW) & (joints <= HIGH))


def test_ee_delta_moves_the_wanted_tool_by_its_scale_and_stays_in_reach():
    controller = Controller(MODEL, "ee_delta")
    start = controller.kinematics.solve(HOME, np.array([0.5, 0.0, 0.2]), 60)
    controller.begin(start)
    before = controller.tool.copy()
    controller.command(np.array([1.0, -0.5, 0.0, 1.0]), start)
    assert np.allclose(controller.tool - before, [STEP_METRES, -0.5 * STEP_METRES, 0])
    for _ in range(100):
        controller.command(np.array([0.0, 1.0, 0.0, 1.0]), controller.joints)
    assert controller.tool[1] == REACH_HIGH[1]


def test_delta_qpos_turns_each_joint_by_its_scale():
    controller = Controller(MODEL, "delta_qpos")
    action = np.array([0.5, -1, 0, 1, 0, 0, 0.25, -1])
    targets = controller.command(action, HOME)
    assert np.allclose(targets[:7] - HOME, STEP_RADIANS * action[:7])
    assert targets[7:].tolist() == [0, 0]


def test_actions_beyond_their_range_are_cut():
    near, far = Controller(MODEL, "delta_qpos"), Controller(MODEL, "delta_qpos")
    assert np.array_equal(near.command(np.ones(8), HOME), far.command(np.full(8, 50.0), HOME))


def test_gripper_opens_with_the_last_number_in_both_modes():
    for mode, size in (("ee_delta", 4), ("delta_qpos", 8)):
        controller = Controller(MODEL, mode)
        for value, metres in ((-1, 0.0), (0, 0.02), (1, 0.04)):
            action = np.zeros(size)
            action[-1] = value
            assert controller.command(action, HOME)[7:] == pytest.approx([metres, metres])


def test_a_blocked_arm_stores_up_no_leap():
    controller = Controller(MODEL, "delta_qpos")
    for _ in range(50):
        controller.command(np.ones(8), HOME)
    assert np.abs(controller.joints - HOME).max() <= 0.3 + 1e-12


def test_both_modes_are_steered_to_the_same_place():
    goal = np.array([0.52, 0.1, 0.12])
    for mode in ("ee_delta", "delta_qpos"):
        controller = Controller(MODEL, mode)
        controller.begin(controller.kinematics.solve(HOME, np.array([0.45, 0.0, 0.18]), 60))
        for _ in range(12):
            action = controller.action_towards(goal, 0.5)
            assert np.abs(action).max() <= 1 + 1e-6
            controller.command(action, controller.joints)
        assert np.allclose(controller.kinematics.position(controller.joints), goal, atol=2e-3)


def test_state_restores_the_next_command():
    first, second = Controller(MODEL, "ee_delta"), Controller(MODEL, "ee_delta")
    first.command(np.array([0.3, 0.2, -0.1, -1]), HOME)
    second.restore(first.state())
    action = np.array([0.1, 0.9, 0.3, 0.5])
    assert np.array_equal(first.command(action, HOME), second.command(action, HOME))


def test_pad_puts_zeros_behind():
    padded = pad(np.ones((2, 8), np.float32))
    assert padded.shape == (2, 32)
    assert padded[:, :8].all()
    assert not padded[:, 8:].any()
    with pytest.raises(ConfigError, match="40 numbers do not fit into 32"):
        pad(np.ones(40, np.float32))


def test_unknown_mode_is_refused():
    with pytest.raises(ConfigError, match="ee_delta, delta_qpos"):
        Controller(MODEL, "torque")
