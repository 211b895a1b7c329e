import numpy as np
import pytest

from lookact.envs.rooms.architecture import build_structure
from lookact.envs.rooms.layout import sample_floor_plan
from lookact.envs.rooms.obstacles import inside_floor
from lookact.envs.rooms.parts import CEILING, FLOOR, WALL, assemble
from lookact.envs.rooms.render import face_normals


def empty_room(seed, shape):
    rng = np.random.default_rng(seed)
    plan = sample_floor_plan(rng, side=(4.0, 6.0), shape=shape)
    return plan, build_structure(plan, (), rng)


@pytest.mark.parametrize("seed", range(6))
@pytest.mark.parametrize("shape", ["rectangle", "L"])
@pytest.mark.parametrize("surface", [FLOOR, CEILING])
def test_floor_and_ceiling_cover_the_plan_exactly(seed, shape, surface):
    plan, placed = empty_room(seed, shape)
    parts = np.concatenate([item.parts for item in placed])
    tiles = parts[parts[:, 0] == surface]
    x, y = plan.floor.T
    area = 0.5 * (x @ np.roll(y, -1) - y @ np.roll(x, -1))
    assert np.prod(tiles[:, 4:6] - tiles[:, 1:3], axis=1).sum() == pytest.approx(area)
    assert (tiles[:, [3, 6]] == (0.0 if surface == FLOOR else plan.height)).all()


def test_floors_are_patterned():
    for seed in range(6):
        _, placed = empty_room(seed, "rectangle")
        floor = placed[0].parts
        assert len(np.unique(floor[:, 7:], axis=0)) >= 2


def test_walls_face_the_room_and_nothing_sticks_out_of_it():
    plan, placed = empty_room(3, "L")
    (walls,) = [item for item in placed if item.parts[0, 0] == WALL]
    assert len(walls.parts) == 6
    corners = assemble([walls]).vertices[assemble([walls]).faces].astype(float)
    inward = corners.mean(axis=1) + 0.05 * face_normals(corners)
    assert inside_floor(plan.floor, inward[:, :2]).all()
    mesh = assemble(placed)
    x0, y0, x1, y1 = plan.bounds
    assert (mesh.vertices[:, :2] >= [x0 - 1e-5, y0 - 1e-5]).all()
    assert (mesh.vertices[:, :2] <= [x1 + 1e-5, y1 + 1e-5]).all()
    assert (mesh.instances == -1).all()
