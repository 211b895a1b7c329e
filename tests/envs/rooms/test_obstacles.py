import numpy as np
import pytest

from lookact.envs.rooms.obstacles import (
    box_distance,
    floor_clearance,
    footprint_distance,
    inside_floor,
    vertical_extent,
)  # fmt: skip
from lookact.envs.rooms.scene import Box

ELL = np.array([[0, 0], [5, 0], [5, 2], [2, 2], [2, 4], [0, 4.0]])


def turned(yaw, *, tilt_first=False):
    axes = np.array([[np.cos(yaw), np.sin(yaw), 0], [-np.sin(yaw), np.cos(yaw), 0], [0, 0, 1.0]])
    size = np.array([2.0, 1.0, 0.5])
    # the upright axis may be listed anywhere
    order = [2, 0, 1] if tilt_first else [0, 1, 2]
    return Box("bed-0", "bed", np.array([1.0, 1.0, 0.25]), size[order], axes[order])


def test_inside_and_clearance_of_an_l():
    points = np.array([[1, 1], [4, 1], [1, 3.5], [3, 3], [-0.5, 1], [2.5, 2.4]])
    assert inside_floor(ELL, points).tolist() == [True, True, True, False, False, False]
    np.testing.assert_allclose(floor_clearance(ELL, points), [1.0, 1.0, 0.5, -1.0, -0.5, -0.4])


def test_the_inner_corner_is_round():
    assert floor_clearance(ELL, np.array([1.7, 1.6])) == pytest.approx(0.5)


@pytest.mark.parametrize("tilt_first", [False, True])
def test_distance_to_a_turned_footprint(tilt_first):
    box = turned(np.pi / 2, tilt_first=tilt_first)
    points = np.array([[1.0, 1.0], [1.5, 2.0], [1.0, 2.5], [1.8, 2.4]])
    np.testing.assert_allclose(footprint_distance(box, points), [0, 0, 0.5, 0.5], atol=1e-12)


def test_vertical_extent():
    assert vertical_extent(turned(0.3)) == pytest.approx((0.0, 0.5))


def test_no_boxes_are_infinitely_far():
    assert np.isinf(box_distance((), np.zeros((3, 2)), height=1.5)).all()
