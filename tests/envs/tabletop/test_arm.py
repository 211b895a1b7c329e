import mujoco
import numpy as np
import pytest

from lookact.envs.tabletop.arm import HOME
from lookact.envs.tabletop.scene import Layout, build_model

# the manufacturer's data sheet, typed in a second time
JOINT_RANGES = [
    (-2.8973, 2.8973),
    (-1.7628, 1.7628),
    (-2.8973, 2.8973),
    (-3.0718, -0.0698),
    (-2.8973, 2.8973),
    (-0.0175, 3.7525),
    (-2.8973, 2.8973),
]
MAX_TORQUES = [87, 87, 87, 87, 12, 12, 12]


@pytest.fixture(scope="module")
def model():
    return build_model(Layout())


@pytest.fixture
def data(model):
    return mujoco.MjData(model)


def rotated(axis: str, angle: float) -> np.ndarray:
    c, s = np.cos(angle), np.sin(angle)
    turn = {"x": [[1, 0, 0], [0, c, -s], [0, s, c]], "z": [[c, -s, 0], [s, c, 0], [0, 0, 1]]}[axis]
    frame = np.eye(4)
    frame[:3, :3] = turn
    return frame


def moved(x: float, y: float, z: float) -> np.ndarray:
    frame = np.eye(4)
    frame[:3, 3] = x, y, z
    return frame


def flange_by_hand(q: np.ndarray) -> np.ndarray:
    """The Panda's flange (4, 4) as a product of elementary moves, read off the published drawing."""
    frame = moved(0, 0, 0.333) @ rotated("z", q[0])
    frame = frame @ rotated("x", -np.pi / 2) @ rotated("z", q[1])
    frame = frame @ rotated("x", np.pi / 2) @ moved(0, 0, 0.316) @ rotated("z", q[2])
    frame = frame @ moved(0.0825, 0, 0) @ rotated("x", np.pi / 2) @ rotated("z", q[3])
    frame = frame @ moved(-0.0825, 0, 0) @ rotated("x", -np.pi / 2) @ moved(0, 0, 0.384) @ rotated("z", q[4])
    frame = frame @ rotated("x", np.pi / 2) @ rotated("z", q[5])
    frame = frame @ moved(0.088, 0, 0) @ rotated("x", np.pi / 2) @ rotated("z", q[6])
    return frame @ moved(0, 0, 0.107)


def test_joint_limits_and_torques_are_the_pandas(model):
    for index, (limits, torque) in enumerate(zip(JOINT_RANGES, MAX_TORQUES), start=1):
        joint, motor = model.joint(f"joint{index}"), model.actuator(f"joint{index}")
        assert joint.range.tolist() == list(limits)
        assert bool(model.jnt_limited[joint.id])
        assert motor.forcerange.tolist() == [-torque, torque]
        assert motor.ctrlrange.tolist() == list(limits)


def test_fingers_open_eight_centimetres(model):
    for side in ("left", "right"):
        assert model.joint(side).range.tolist() == [0, 0.04]


def test_link_lengths_are_the_pandas(model, data):
    rng = np.random.default_rng(0)
    low, high = np.array(JOINT_RANGES).T
    for _ in range(20):
        data.qpos[:7] = q = rng.uniform(low, high)
        mujoco.mj_kinematics(model, data)
        flange = flange_by_hand(q)
        assert np.allclose(data.body("hand").xpos, flange[:3, 3], atol=1e-9)
        hand = flange @ rotated("z", -np.pi / 4)
        assert np.allclose(data.body("hand").xmat.reshape(3, 3), hand[:3, :3], atol=1e-9)
        assert np.allclose(data.site("tool").xpos, (hand @ moved(0, 0, 0.1034))[:3, 3], atol=1e-9)


def test_at_home_the_fingers_point_down_and_open_sideways(model, data):
    data.qpos[:7] = HOME
    mujoco.mj_kinematics(model, data)
    assert np.allclose(data.site("tool").xmat.reshape(3, 3), np.diag([1, -1, -1]), atol=1e-6)
    assert data.site("tool").xpos[0] == pytest.approx(0.30689, abs=1e-4)


def test_the_arm_holds_its_pose_against_gravity(model, data):
    data.qpos[:7] = data.ctrl[:7] = HOME
    data.ctrl[7:9] = data.qpos[7:9] = 0.04
    mujoco.mj_step(model, data, 200)
    assert np.allclose(data.qpos[:7], HOME, atol=1e-4)
