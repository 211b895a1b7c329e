import numpy as np
import pytest

from lookact.envs.rooms.furniture import make_piece
from lookact.envs.rooms.layout import DOOR_WIDTH, furnish, sample_floor_plan


def pieces(*labels):
    return [make_piece(label, np.random.default_rng(number)) for number, label in enumerate(labels)]


def test_what_does_not_fit_is_reported():
    plan = sample_floor_plan(np.random.default_rng(0), side=(2.2, 2.4), shape="rectangle")
    assert furnish(plan, pieces("bed", "sofa", "bathtub"), np.random.default_rng(0)) is None


def test_the_door_stays_clear():
    for seed in range(20):
        rng = np.random.default_rng(seed)
        plan = sample_floor_plan(rng, side=(4.5, 6.0), shape="rectangle")
        standing = furnish(plan, pieces("sofa", "cabinet", "shelf", "washer"), rng)
        wall = plan.walls[plan.door_wall]
        steps = np.linspace(0.05, DOOR_WIDTH - 0.05, 7) + plan.door_start
        before = wall.start + steps[:, None] * wall.direction + 0.4 * wall.normal
        for item in standing or ():
            x0, y0, x1, y1 = item.rectangle
            assert not ((before > [x0, y0]) & (before < [x1, y1])).all(axis=1).any()


def test_the_front_of_a_cabinet_stays_clear():
    for seed in range(20):
        rng = np.random.default_rng(seed)
        plan = sample_floor_plan(rng, side=(4.5, 6.0), shape="L")
        standing = furnish(plan, pieces("cabinet", "sofa", "stove", "table", "stool"), rng) or ()
        for item in standing:
            if item.wall < 0:
                continue
            front = np.array([item.x, item.y]) + plan.walls[item.wall].normal * (item.piece.size[1] / 2 + 0.3)
            for other in standing:
                x0, y0, x1, y1 = other.rectangle
                assert not ((front > [x0, y0]) & (front < [x1, y1])).all()


def area(corners):
    x, y = corners.T
    return 0.5 * float(x @ np.roll(y, -1) - y @ np.roll(x, -1))


@pytest.mark.parametrize("seed", range(8))
@pytest.mark.parametrize("shape", ["rectangle", "L"])
def test_plans_are_counter_clockwise_and_within_their_sides(seed, shape):
    plan = sample_floor_plan(np.random.default_rng(seed), side=(4.0, 6.0), shape=shape)
    sides = plan.bounds[2:] - plan.bounds[:2]
    assert ((sides >= 4.0) & (sides <= 6.0)).all()
    cut = np.prod(plan.notch[:, 2:] - plan.notch[:, :2], axis=1).sum()
    assert area(plan.floor) == pytest.approx(np.prod(sides) - cut)
    assert (cut > 0) == (shape == "L")


@pytest.mark.parametrize("seed", range(8))
def test_walls_go_round_and_the_door_fits_its_wall(seed):
    plan = sample_floor_plan(np.random.default_rng(seed), side=(4.0, 6.0), shape="L")
    for number, wall in enumerate(plan.walls):
        np.testing.assert_allclose(wall.start + wall.direction * wall.length, plan.floor[(number + 1) % 6])
        assert wall.direction @ wall.normal == 0
        np.testing.assert_allclose([np.cos(wall.yaw), np.sin(wall.yaw)], wall.direction, atol=1e-12)
    assert 0 < plan.door_start < plan.walls[plan.door_wall].length - DOOR_WIDTH
