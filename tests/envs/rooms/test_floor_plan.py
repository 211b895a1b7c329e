import numpy as np
import pytest

from lookact.envs.rooms.floor_plan import floor_hull, floor_plan, outline, simplify
from lookact.envs.rooms.generate import RoomStyle, generate_room
from lookact.envs.rooms.scene import Box

NO_BOXES = ()


def area(corners):
    x, y = corners.T
    return float(x @ np.roll(y, -1) - y @ np.roll(x, -1)) / 2


def sheets(*rectangles, height=0.0):
    """Two triangles a rectangle (left, near, right, far)."""
    vertices, faces = [], []
    for left, near, right, far in rectangles:
        start = len(vertices)
        vertices += [(left, near, height), (right, near, height), (right, far, height), (left, far, height)]
        faces += [(start, start + 1, start + 2), (start, start + 2, start + 3)]
    return np.array(vertices, np.float32), np.array(faces, np.int32)


def test_a_room_of_four_walls_keeps_its_corners():
    plan = floor_plan(*sheets((0.0, 0.0, 4.0, 3.0)), NO_BOXES)
    assert sorted(plan.round(6).tolist()) == [[0, 0], [0, 3], [4, 0], [4, 3]]
    # counter-clockwise
    assert area(plan) == pytest.approx(12.0)


def test_an_inner_corner_is_not_bridged():
    vertices, faces = sheets((0.0, 0.0, 6.0, 2.0), (0.0, 2.0, 2.0, 5.0))
    plan = floor_plan(vertices, faces, NO_BOXES)
    assert len(plan) == 6
    assert area(plan) == pytest.approx(18.0)
    assert area(floor_hull(vertices)) == pytest.approx(24.0)


def test_what_a_scan_misses_is_closed_and_what_stands_on_the_floor_counts():
    # a slit of 10 cm, and a bed in the corner under which nothing was scanned
    vertices, faces = sheets((0.0, 0.0, 1.9, 3.0), (2.0, 0.0, 3.0, 3.0), (3.0, 0.0, 5.0, 1.0))
    bed = Box("b", "bed", np.array([4.0, 2.0, 0.3]), np.array([2.0, 2.0, 0.6]), np.eye(3))
    lamp = Box("l", "lamp", np.array([9.0, 9.0, 2.0]), np.array([1.0, 1.0, 0.2]), np.eye(3))
    assert area(floor_plan(vertices, faces, (bed, lamp))) == pytest.approx(15.0)


def test_what_is_seen_through_a_window_does_not_count():
    assert area(floor_plan(*sheets((0.0, 0.0, 4.0, 3.0), (6.0, 0.0, 7.0, 1.0)), NO_BOXES)) == pytest.approx(12.0)


@pytest.mark.parametrize("angle", [0.1, 0.7])
def test_turned_rooms_have_their_area(angle):
    vertices, faces = sheets((0.0, 0.0, 6.0, 2.0), (0.0, 2.0, 2.0, 5.0))
    c, s = np.cos(angle), np.sin(angle)
    vertices[:, :2] = vertices[:, :2] @ np.array([[c, s], [-s, c]], np.float32)
    plan = floor_plan(vertices, faces, NO_BOXES)
    assert area(plan) == pytest.approx(18.0, rel=0.01)
    assert len(plan) < 40


@pytest.mark.parametrize("shape", ["rectangle", "L"])
def test_a_generated_rooms_mesh_tells_the_floor_that_it_was_made_with(shape):
    for seed in range(3):
        room = generate_room(seed, RoomStyle(shapes=(shape,)))
        # the floor goes on below doors, into the wall
        assert area(floor_plan(room.vertices, room.faces, room.boxes)) == pytest.approx(area(room.floor), rel=0.04)


def test_an_outline_goes_around_cells_that_touch_at_a_corner():
    cells = np.array([[1, 1, 0], [1, 0, 1], [1, 1, 1]], bool)
    assert area(outline(cells)) == cells.sum()
    assert area(simplify(outline(np.ones((7, 3), bool)), 0.1)) == 21


def test_without_a_surface_the_hull_stands_in():
    corners = np.array([[0, 0, 0], [2, 0, 0], [0, 2, 0], [2, 2, 0]], np.float32)
    assert area(floor_plan(corners, np.zeros((0, 3), np.int32), NO_BOXES)) == pytest.approx(4.0)
