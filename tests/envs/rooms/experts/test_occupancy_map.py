import dataclasses
import math

import numpy as np
import pytest

from lookact.envs.rooms.experts.occupancy_map import OccupancyMap, best_move, pixel_points, within
from lookact.envs.rooms.motion import Limits, Move, Pose, apply_move
from lookact.envs.rooms.render import Camera
from lookact.envs.rooms.simulator import render_view
from lookact.envs.rooms.space import FreeSpace, cells_of, distance_field

CAMERA = Camera.square(96)


@pytest.fixture
def looked(make_place):
    """A look along +X at a block 2 m ahead, in a room of 6 by 4 m."""
    place = make_place(6.0, 4.0, {"table": (3.0, 1.5, 1.0, 1.0, 2.0)})
    pose = Pose(1.0, 2.0, 0.0, 1.2)
    seen = OccupancyMap(pose, CAMERA)
    view = render_view(place, pose, CAMERA)
    seen.add(view)
    return seen, view


def cell(seen, x, y):
    col, row = cells_of(np.array([x, y]), seen.origin, 0.1)
    return row, col


def test_pixels_lie_where_the_surfaces_are(looked):
    _, view = looked
    points = pixel_points(view, CAMERA)
    block = points[view.instance == 0]
    assert block[:, 0] == pytest.approx(3.0, abs=1e-4)
    assert points[-1, 48] == pytest.approx([1.0 + 1.2 * 96 / 95, 2.0, 0.0], abs=0.02)


def test_solid_open_and_unseen(looked):
    seen, _ = looked
    assert seen.solid[cell(seen, 3.02, 2.0)]
    assert seen.seen[cell(seen, 2.0, 2.0)]
    assert not seen.solid[cell(seen, 2.0, 2.0)]
    assert not seen.seen[cell(seen, 5.0, 2.0)], "behind the block"
    assert not seen.seen[cell(seen, 0.5, 2.0)], "behind the camera"
    assert seen.solid[cell(seen, 5.98, 0.2)] or seen.solid[cell(seen, 6.02, 0.2)], "the far wall"


@pytest.mark.parametrize("off", [-5e-7, -2e-7, 2e-7, 5e-7])
def test_the_last_digits_of_a_depth_change_no_map(make_place, off):
    """Faces on edges of cells, and a top at the height of a step: kinds of CPU differ in what they make of them."""
    place = make_place(6.0, 4.0, {"table": (3.0, 1.5, 1.0, 1.0, 2.0), "chest": (2.0, 0.5, 1.0, 0.5, 0.15)})
    view = render_view(place, Pose(1.0, 2.0, 0.0, 1.2), CAMERA)
    grids = []
    # what was hit is at most off by a few steps of single precision
    for depth in (view.depth, view.depth * np.float32(1 + off / 3)):
        seen = OccupancyMap(view.pose, CAMERA)
        seen.add(dataclasses.replace(view, depth=depth))
        grids.append(seen)
    # between y = 1 m and 3 m, away from the walls
    ahead = grids[0].solid[130:150, :165]
    assert np.unique(np.nonzero(ahead)[1]).tolist() == [160]
    assert ahead.sum() == 10
    assert (grids[1].solid == grids[0].solid).all()


@pytest.mark.parametrize("yaw", np.arange(-3.1, 3.1, 0.31))
def test_a_metre_away_and_half_a_view_aside_was_not_looked_at_from_wherever_one_comes(make_place, yaw):
    place = make_place(8.0, 8.0, {})
    first = Pose(4.0, 4.0, yaw, 1.2)
    seen = OccupancyMap(first, CAMERA)
    seen.add(render_view(place, first, CAMERA))
    walked = apply_move(place.space, first, Move(0.0, 1.0)).pose
    assert not seen._viewed(walked, walked.yaw)
    turned = apply_move(place.space, first, Move(45.0, 0.0)).pose
    assert not seen._viewed(turned, turned.yaw)
    assert seen._viewed(turned, turned.yaw - 0.01)


def test_the_body_keeps_away_from_solid_things_and_takes_the_unseen_for_free(looked):
    seen, _ = looked
    space = seen.space(Pose(1.0, 2.0, 0.0, 1.2), clearance=0.2)
    assert space.contains(np.array([2.5, 2.0]))
    assert not space.contains(np.array([2.95, 2.0]))
    assert space.contains(np.array([0.75, 2.0]))


def test_it_turns_where_it_has_not_looked_until_it_has_looked_everywhere(make_place):
    place = make_place(8.0, 8.0, {})
    pose = Pose(4.0, 4.0, 0.3, 1.2)
    seen = OccupancyMap(pose, CAMERA)
    rotations = []
    for _ in range(5):
        seen.add(render_view(place, pose, CAMERA))
        rotation = seen.unexplored_rotation(pose)
        if rotation is None:
            break
        rotations.append(rotation)
        pose = Pose(4.0, 4.0, pose.yaw + math.radians(rotation), 1.2)
    assert rotations == [90, 90, 90]
    assert not seen.frontier().any()


def test_it_turns_full_circle_though_a_wall_is_near(make_place):
    pose = Pose(0.4, 4.0, 0.3, 1.2)
    seen = OccupancyMap(pose, CAMERA)
    for rotation in (90, 90, 90, None):
        seen.add(render_view(make_place(8.0, 8.0, {}), pose, CAMERA))
        assert seen.unviewed_rotation(pose) == rotation
        pose = Pose(0.4, 4.0, pose.yaw + math.radians(rotation or 0), 1.2)


def test_an_edge_of_the_seen_is_a_frontier(looked):
    seen, _ = looked
    assert seen.frontier().any()


def test_a_bump_closes_the_way_ahead_only(looked):
    seen, _ = looked
    pose = Pose(1.0, 2.0, 0.0, 1.2)
    seen.mark_blocked(pose)
    space = seen.space(pose, clearance=0.2)
    assert not space.contains(np.array([1.25, 2.0]))
    assert space.contains(np.array([0.85, 2.0]))


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
