import mujoco
import numpy as np

from lookact.envs.tabletop.orientation import look_at, rotation_error, turned


def matrix(quaternion: np.ndarray) -> np.ndarray:
    found = np.zeros(9)
    mujoco.mju_quat2Mat(found, quaternion)
    return found.reshape(3, 3)


def test_a_camera_looks_along_its_negative_z_with_up_upwards():
    eye, point = np.array([1.0, 2.0, 3.0]), np.array([1.0, 5.0, 3.0])
    right, up, back = matrix(look_at(eye, point, np.array([0.0, 0.0, 1.0]))).T
    assert np.allclose(back, [0, -1, 0])
    assert np.allclose(up, [0, 0, 1])
    assert np.allclose(right, [1, 0, 0])


def test_turned_by_a_quarter_takes_x_to_y():
    assert np.allclose(matrix(turned(np.pi / 2)) @ [1, 0, 0], [0, 1, 0])


def test_rotation_error_is_the_small_turn_that_is_missing():
    for axis in np.eye(3):
        quaternion = np.array([np.cos(0.005), *(np.sin(0.005) * axis)])
        start = matrix(turned(0.7))
        assert np.allclose(rotation_error(matrix(quaternion) @ start, start), 0.01 * axis, atol=1e-6)
