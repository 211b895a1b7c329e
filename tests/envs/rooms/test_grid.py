import numpy as np
import pytest

from lookact.envs.rooms.grid import SINGLE_ROUNDING, cells_of

ORIGIN = np.array([-13.0, -12.0])


@pytest.mark.parametrize("x", [3.0, 2.9999998, 3.0000002, np.nextafter(3.0, 0.0), np.float32(3.0) - np.float32(2e-7)])
def test_a_depth_on_an_edge_falls_into_the_cell_behind_it_whichever_way_it_was_rounded(x):
    assert cells_of(np.array([x, 2.05]), ORIGIN, 0.1, tolerance=SINGLE_ROUNDING).tolist() == [160, 140]


def test_every_edge_of_a_grid_is_held_by_the_cell_above_it():
    numbers = np.arange(400)
    for edges in (numbers * 0.1, np.cumsum(np.full(400, 0.1)) - 0.1, numbers / 10 - 1e-13):
        points = np.stack([edges, edges], axis=-1) + ORIGIN
        assert (cells_of(points, ORIGIN, 0.1) == numbers[:, None]).all()


def test_away_from_an_edge_nothing_is_moved():
    points = np.random.default_rng(0).uniform(-1.0, 1.0, (1000, 2))
    assert (cells_of(points, np.zeros(2), 0.1) == np.floor(points / 0.1)).all()
