import numpy as np

from lookact.envs.rooms.furniture import make_piece
from lookact.envs.rooms.layout import furnish
from lookact.envs.rooms.plan import DOOR_WIDTH, draw_plan


def pieces(*labels):
    return [make_piece(label, np.random.default_rng(number)) for number, label in enumerate(labels)]


def test_what_does_not_fit_is_reported():
    plan = draw_plan(np.random.default_rng(0), side=(2.2, 2.4), shape="rectangle")
    assert furnish(plan, pieces("bed", "sofa", "bathtub"), np.random.default_rng(0)) is None


def test_the_door_stays_clear():
    for seed in range(20):
        rng = np.random.default_rng(seed)
        plan = draw_plan(rng, side=(4.5, 6.0), shape="rectangle")
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
        plan = draw_plan(rng, side=(4.5, 6.0), shape="L")
        standing = furnish(plan, pieces("cabinet", "sofa", "stove", "table", "stool"), rng) or ()
        for item in standing:
            if item.wall < 0:
                continue
            front = np.array([item.x, item.y]) + plan.walls[item.wall].normal * (item.piece.size[1] / 2 + 0.3)
            for other in standing:
                x0, y0, x1, y1 = other.rectangle
                assert not ((front > [x0, y0]) & (front < [x1, y1])).all()
