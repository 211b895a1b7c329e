import math

import numpy as np
import pytest

from lookact.envs.rooms.motion import Limits, Move, Pose, apply_move, read_move, wrap
from lookact.envs.rooms.space import FreeSpace
from lookact.errors import ParseError

LIMITS = Limits(rotation_degrees=180, forward_meters=1.5)
OPEN = FreeSpace(np.ones((40, 40), bool), np.zeros(2), 0.1)


def test_a_move_is_written_as_agents_write_it():
    assert Move(-30, 0.75).json() == '{"rotation_angle_degrees": -30, "forward_meters": 0.75}'
    assert Move(90, 0).json() == '{"rotation_angle_degrees": 90, "forward_meters": 0.0}'


def test_a_reply_and_its_dict_are_the_same_move():
    reply = 'I see it. {"rotation_angle_degrees": 15, "forward_meters": 0.5}'
    as_dict = {"rotation_angle_degrees": np.float32(15), "forward_meters": 0.5}
    assert read_move(reply, LIMITS) == read_move(as_dict, LIMITS) == Move(15, 0.5)


@pytest.mark.parametrize(
    ("rotation", "forward", "expected"),
    [(500, 9, Move(180, 1.5)), (-500, 0.1, Move(-180, 0.1)), (0, -2, Move(0, 0))],
)
def test_moves_are_clamped_and_backward_is_standing_still(rotation, forward, expected):
    assert read_move({"rotation_angle_degrees": rotation, "forward_meters": forward}, LIMITS) == expected


@pytest.mark.parametrize("action", ["", "go left", '{"forward_meters": 1}', {"rotation_angle_degrees": math.nan}, {}])
def test_what_is_no_move_raises(action):
    with pytest.raises(ParseError):
        read_move(action, LIMITS)


def test_rotation_comes_first_and_positive_is_left():
    motion = apply_move(OPEN, Pose(2.0, 2.0, 0.0, 1.2), Move(90, 1.0))
    assert (motion.pose.x, motion.pose.y) == pytest.approx((2.0, 3.0))
    assert motion.pose.yaw == pytest.approx(math.pi / 2)
    assert motion.travelled == pytest.approx(1.0)
    assert not motion.collided


def test_a_blocked_walk_stops_at_the_obstacle():
    free = np.ones((40, 40), bool)
    free[:, 30:] = False
    motion = apply_move(FreeSpace(free, np.zeros(2), 0.1), Pose(2.0, 2.0, 0.0, 1.2), Move(0, 1.5))
    assert motion.collided
    assert motion.travelled == pytest.approx(1.0, abs=1e-3)
    assert motion.pose.y == pytest.approx(2.0)


def test_turning_round_and_round_stays_in_range():
    pose = Pose(2.0, 2.0, 3.0, 1.2)
    for _ in range(50):
        pose = apply_move(OPEN, pose, Move(135, 0)).pose
        assert -math.pi <= pose.yaw < math.pi
    assert wrap(3 * math.pi) == pytest.approx(-math.pi)
