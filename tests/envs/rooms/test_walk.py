import numpy as np

from lookact.envs.rooms.space import FreeSpace
from lookact.envs.rooms.walk import LOOKS, STROLL, record_walk


def test_a_walk_looks_all_round_at_both_ends_and_crosses_the_room():
    free = np.zeros((30, 60), dtype=bool)
    free[2:28, 2:58] = True
    poses = record_walk(FreeSpace(free, np.zeros(2), 0.1), np.random.default_rng(0))
    assert poses.shape == (2 * LOOKS + STROLL, 4, 4)
    for spin in (poses[:LOOKS], poses[-LOOKS:]):
        yaws = np.sort(np.arctan2(spin[:, 1, 2], spin[:, 0, 2]))
        assert np.diff(yaws).max() < 2 * np.pi / LOOKS + 1e-6
        assert np.ptp(spin[:, :2, 3], axis=0).max() < 1e-9
    # from anywhere, the farthest place lies at least half of the long side away
    assert np.linalg.norm(poses[0, :2, 3] - poses[-1, :2, 3]) > 2.3
    # the camera looks level from left to right and a little down
    assert np.allclose(poses[:, 2, 0], 0)
    assert (poses[:, 2, 2] < 0).all()
