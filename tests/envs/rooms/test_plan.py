import numpy as np
import pytest

from lookact.envs.rooms.plan import DOOR_WIDTH, draw_plan


def area(corners):
    x, y = corners.T
    return 0.5 * float(x @ np.roll(y, -1) - y @ np.roll(x, -1))


@pytest.mark.parametrize("seed", range(8))
@pytest.mark.parametrize("shape", ["rectangle", "L"])
def test_plans_are_counter_clockwise_and_within_their_sides(seed, shape):
    plan = draw_plan(np.random.default_rng(seed), side=(4.0, 6.0), shape=shape)
    sides = plan.bounds[2:] - plan.bounds[:2]
    assert ((sides >= 4.0) & (sides <= 6.0)).all()
    cut = np.prod(plan.notch[:, 2:] - plan.notch[:, :2], axis=1).sum()
    assert area(plan.floor) == pytest.approx(np.prod(sides) - cut)
    assert (cut > 0) == (shape == "L")


@pytest.mark.parametrize("seed", range(8))
def test_walls_go_round_and_the_door_fits_its_wall(seed):
    plan = draw_plan(np.random.default_rng(seed), side=(4.0, 6.0), shape="L")
    for number, wall in enumerate(plan.walls):
        np.testing.assert_allclose(wall.start + wall.direction * wall.length, plan.floor[(number + 1) % 6])
        assert wall.direction @ wall.normal == 0
        np.testing.assert_allclose([np.cos(wall.yaw), np.sin(wall.yaw)], wall.direction, atol=1e-12)
    assert 0 < plan.door_start < plan.walls[plan.door_wall].length - DOOR_WIDTH
