import dataclasses

import numpy as np
import pytest

from lookact.envs.rooms.generate import generate_room
from lookact.envs.rooms.maps import GOAL, PAPER, PATHS, draw_map, draw_walk, floor_map
from lookact.envs.rooms.scene import camera_pose
from lookact.envs.rooms.space import free_space


@pytest.fixture(scope="module")
def scene():
    return generate_room(4)


def count(picture, ink, tolerance=12):
    return int((np.abs(picture.astype(int) - ink).max(axis=2) <= tolerance).sum())


def test_a_map_is_a_picture_with_paper_round_it(scene):
    picture = draw_map(scene, size=128)
    assert picture.shape == (128, 128, 3)
    assert picture.dtype == np.uint8
    assert picture[0, 0].tolist() == list(PAPER)
    assert (picture[64, 64] != PAPER).any()


def test_goal_and_paths_are_drawn_in_their_inks(scene):
    plain = draw_map(scene, size=160, labels=False)
    path = scene.trajectory[:, :2, 3]
    marked = draw_map(scene, size=160, labels=False, goal=0, paths=[path])
    assert count(plain, GOAL) == 0
    assert count(marked, GOAL) > 30
    assert count(marked, PATHS[0]) > 30


def test_a_pose_looks_where_it_points(scene):
    middle = scene.floor.mean(axis=0) if len(scene.floor) == 4 else scene.floor[:1].mean(axis=0) + 0.8
    plain = draw_map(scene, size=200, labels=False)
    east = draw_map(scene, size=200, labels=False, poses=[camera_pose(*middle, 0.0, height=1.0)])
    changed = np.argwhere((plain != east).any(axis=2))
    north = draw_map(scene, size=200, labels=False, poses=[camera_pose(*middle, np.pi / 2, height=1.0)])
    turned = np.argwhere((plain != north).any(axis=2))
    # rows grow downwards: looking north moves the wedge up, looking east to the right
    assert turned[:, 0].mean() < changed[:, 0].mean() - 2
    assert changed[:, 1].mean() > turned[:, 1].mean() + 2


def test_free_cells_are_tinted(scene):
    space = free_space(scene)
    plain, tinted = draw_map(scene, size=96, labels=False), draw_map(scene, size=96, labels=False, space=space)
    # shrinking the picture rings a little beyond the tint
    share = (np.abs(plain.astype(int) - tinted).max(axis=2) > 10).mean()
    extent = np.ptp(scene.floor, axis=0).max() / 0.9
    assert share == pytest.approx(space.free.sum() * 0.01 / extent**2, abs=0.05)


def test_names_are_written_unless_not_wanted(scene):
    assert (draw_map(scene, size=128) != draw_map(scene, size=128, labels=False)).any()


def test_a_room_without_objects_or_walk_can_be_drawn(scene):
    bare = scene.instances < 0
    empty = dataclasses.replace(
        scene, boxes=(), faces=scene.faces[bare], instances=scene.instances[bare], trajectory=np.zeros((0, 4, 4))
    )
    assert draw_map(empty, size=64, paths=[np.zeros((0, 2))]).shape == (64, 64, 3)


def test_a_floor_map_knows_where_its_metres_lie(scene):
    room = floor_map(scene, 0, size=160)
    assert count(room.picture, GOAL) > 30
    corners = room.to_pixels(scene.floor)
    low, high = corners.min(axis=0), corners.max(axis=0)
    # a twentieth is left free on each side of the longer way, and y grows upwards
    assert max(high - low) == pytest.approx(160 * 0.9)
    assert low.tolist() == pytest.approx((160 - high).tolist())
    north = scene.floor[scene.floor[:, 1].argmax()]
    assert room.to_pixels(north)[0, 1] == pytest.approx(low[1])


def test_a_walk_is_drawn_where_it_was_walked(scene):
    room = floor_map(scene, size=200)
    x, y = room.middle
    drawn = draw_walk(room, np.array([[x - 0.5, y, 0.0, 1.2], [x + 0.5, y, 0.0, 1.2]]))
    changed = np.argwhere(np.abs(drawn.astype(int) - room.picture).max(axis=2) > 60)
    assert count(drawn, PATHS[0], tolerance=60) > 20
    assert abs(changed[:, 0].mean() - 100) < 3
    assert changed[:, 1].min() == pytest.approx(100 - 0.5 * room.scale, abs=6)
