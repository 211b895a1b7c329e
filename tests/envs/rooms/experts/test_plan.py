import numpy as np
import pytest

from lookact.envs.rooms.experts.plan import best_move, within
from lookact.envs.rooms.motion import Limits, Pose
from lookact.envs.rooms.space import FreeSpace, distance_field


def test_within_is_a_disc():
    space = FreeSpace(np.ones((41, 41), bool), np.zeros(2), 0.1)
    near = within(space, np.array([[2.05, 2.05]]), 1.0)
    assert near[20, 30]
    assert not near[20, 31]
    assert near.sum() == pytest.approx(np.pi * 100, rel=0.03)


def test_the_best_move_arrives_by_the_shortest_walk():
    space = FreeSpace(np.ones((60, 60), bool), np.zeros(2), 0.1)
    field = distance_field(space, within(space, np.array([[4.0, 3.0]]), 0.5))
    move = best_move(space, field, Pose(2.55, 3.05, 0.0, 1.2), Limits(forward_meters=1.5), 0.0)
    assert (move.rotation_degrees, move.forward_meters) == (0, 1.0)


def test_no_move_where_everything_is_blocked():
    free = np.zeros((60, 60), bool)
    free[30, 30] = True
    space = FreeSpace(free, np.zeros(2), 0.1)
    field = np.where(free, 1.0, np.inf).astype(np.float32)
    assert best_move(space, field, Pose(3.05, 3.05, 0.0, 1.2), Limits(), 0.0) is None
