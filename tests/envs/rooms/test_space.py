import heapq
import itertools

import numpy as np
import pytest
from scipy import ndimage

from lookact.envs.rooms.generate import generate_room
from lookact.envs.rooms.parts import BOX, Placed, assemble
from lookact.envs.rooms.scene import Box, Scene
from lookact.envs.rooms.space import (
    SINGLE_ROUNDING,
    FreeSpace,
    advance,
    cells_of,
    distance_field,
    free_space,
    shortest_path,
)
from lookact.errors import DataError

SQUARE = np.array([[0, 0], [5, 0], [5, 4], [0, 4.0]])


def room(floor=SQUARE, boxes=(), parts=None):
    """A floor plan with boxes, and a mesh of parts that no box accounts for."""
    mesh = assemble([Placed(np.array(parts if parts is not None else [[BOX, 9, 9, 9, 9.1, 9.1, 9.1, 0, 0, 0]]))])
    return Scene(
        "room", mesh.vertices, mesh.faces, mesh.colors, mesh.instances, tuple(boxes), floor, np.zeros((0, 4, 4))
    )


def upright_box(x, y, z, size, yaw=0.0):
    cosine, sine = np.cos(yaw), np.sin(yaw)
    axes = np.array([[cosine, sine, 0], [-sine, cosine, 0], [0, 0, 1.0]])
    return Box("table-0", "table", np.array([x, y, z]), np.array(size), axes)


def random_grid(seed, shape=(14, 17), density=0.3):
    free = np.random.default_rng(seed).random(shape) > density
    return FreeSpace(free, np.array([-1.0, 0.5]), 0.1)


def test_index_and_centre_are_inverse():
    space = random_grid(0)
    assert space.index(space.centre(3, 11)) == (3, 11)
    np.testing.assert_allclose(space.centre(0, 0), [-0.95, 0.55])
    assert not space.contains(np.array([-1.01, 0.6]))


def test_an_empty_room_is_free_up_to_the_radius():
    space = free_space(room(), radius=0.2)
    rows, cols = np.nonzero(space.free)
    assert space.free.shape == (40, 50)
    assert (rows.min(), rows.max(), cols.min(), cols.max()) == (2, 37, 2, 47)
    assert space.free.sum() == 36 * 46


def test_the_notch_of_an_l_is_not_free():
    floor = np.array([[0, 0], [5, 0], [5, 2], [2, 2], [2, 4], [0, 4.0]])
    space = free_space(room(floor))
    assert space.contains(np.array([1.0, 3.0]))
    assert space.contains(np.array([4.0, 1.0]))
    assert not space.contains(np.array([4.0, 3.0]))
    assert not space.contains(np.array([2.1, 1.95]))


def test_a_turned_box_blocks_its_rounded_footprint():
    box = upright_box(2.5, 2.0, 0.4, (1.0, 0.5, 0.8), yaw=np.pi / 4)
    space = free_space(room(boxes=[box]), radius=0.2)
    along, across = np.array([1, 1]) / np.sqrt(2), np.array([-1, 1]) / np.sqrt(2)
    middle = np.array([2.5, 2.0])
    assert not space.contains(middle + 0.6 * along)
    assert space.contains(middle + 0.85 * along)
    assert not space.contains(middle + 0.35 * across)
    assert space.contains(middle + 0.6 * across)


@pytest.mark.parametrize(("bottom", "height", "blocks"), [(0.0, 0.1, False), (0.0, 0.5, True), (1.8, 0.4, False)])
def test_low_sills_and_high_shelves_are_no_obstacle(bottom, height, blocks):
    box = upright_box(2.5, 2.0, bottom + height / 2, (0.5, 0.5, height))
    assert free_space(room(boxes=[box])).contains(np.array([2.55, 2.05])) is not blocks


def test_a_pillar_without_a_box_is_in_the_way_and_the_walls_themselves_are_not():
    shell = [BOX, 0, 0, 0, 5, 4, 2.5, 9, 9, 9]
    pillar = [BOX, 2.0, 1.5, 0, 2.6, 2.1, 2.5, 9, 9, 9]
    empty = free_space(room(parts=[shell]))
    assert empty.free.sum() == 36 * 46
    space = free_space(room(parts=[shell, pillar]))
    assert not space.contains(np.array([2.05, 1.55]))
    assert not space.contains(np.array([1.86, 1.8]))
    assert space.contains(np.array([1.65, 1.8]))


def test_a_pocket_behind_a_barrier_is_not_free():
    barrier = upright_box(3.5, 2.0, 0.5, (0.2, 4.0, 1.0))
    space = free_space(room(boxes=[barrier]))
    assert space.contains(np.array([1.0, 1.0]))
    assert not space.contains(np.array([4.5, 1.0]))


@pytest.mark.parametrize("seed", range(6))
def test_generated_free_space_is_one_region_away_from_walls_and_boxes(seed):
    scene = generate_room(seed)
    space = free_space(scene, radius=0.2)
    assert ndimage.label(space.free)[1] == 1
    low, high = scene.floor.min(axis=0), scene.floor.max(axis=0)
    angles = np.linspace(0, 2 * np.pi, 16, endpoint=False)
    ring = 0.195 * np.stack([np.cos(angles), np.sin(angles), 0 * angles], axis=1)
    for row, col in np.argwhere(space.free)[::7]:
        around = np.append(space.centre(row, col), 0.3) + ring
        assert (around[:, :2] > low).all()
        assert (around[:, :2] < high).all()
        for box in scene.boxes:
            local = np.abs((around - box.centroid) @ box.axes.T)[:, :2]
            assert (local > box.size[:2] / 2).any(axis=1).all()


def brute_force_field(space, goal):
    """Dijkstra with a heap; a move is open when a thin band round its segment stays on free cells."""
    rows, cols = space.free.shape
    moves = [(r, c) for r in range(-2, 3) for c in range(-2, 3) if np.gcd(r, c) == 1]
    assert len(moves) == 16
    distance = np.full((rows, cols), np.inf)
    distance[goal] = 0.0
    heap = [(0.0, goal)]
    while heap:
        so_far, (row, col) = heapq.heappop(heap)
        if so_far > distance[row, col]:
            continue
        for down, right in moves:
            there = (row + down, col + right)
            if not (0 <= there[0] < rows and 0 <= there[1] < cols):
                continue
            steps = np.linspace(0, 1, 41)[:, None] * (down, right) + (row + 0.5, col + 0.5)
            aside = np.array([right, -down]) * 1e-3
            cells = np.floor(np.concatenate([steps + aside, steps - aside])).astype(int)
            if (
                space.free[cells[:, 0], cells[:, 1]].all()
                and so_far + space.cell * np.hypot(down, right) < distance[there] - 1e-12
            ):
                distance[there] = so_far + space.cell * np.hypot(down, right)
                heapq.heappush(heap, (distance[there], there))
    return distance


@pytest.mark.parametrize("seed", range(4))
def test_field_equals_brute_force_dijkstra(seed):
    space = random_grid(seed, shape=(10, 12))
    goal = tuple(int(x) for x in np.argwhere(space.free)[5])
    field = distance_field(space, space.centre(*goal)[None])
    np.testing.assert_allclose(field, brute_force_field(space, goal), rtol=1e-6)


def test_field_of_an_empty_room_is_nearly_the_straight_distance():
    space = free_space(room())
    goal = space.centre(9, 30)
    field = distance_field(space, goal[None])
    rows, cols = np.nonzero(space.free)
    straight = np.hypot((rows - 9) * 0.1, (cols - 30) * 0.1)
    ratio = field[rows, cols][straight > 0] / straight[straight > 0]
    assert ratio.min() > 1 - 1e-6
    # the worst angle between two of 16 directions costs 1 / cos(13.3°)
    assert ratio.max() < 1.0275
    assert np.isinf(field[~space.free]).all()


def test_field_takes_a_mask_of_goals_and_ignores_blocked_ones():
    space = free_space(room())
    mask = np.zeros_like(space.free)
    mask[10, 10] = mask[30, 40] = True
    points = np.stack([space.centre(10, 10), space.centre(30, 40)])
    np.testing.assert_array_equal(distance_field(space, mask), distance_field(space, points))
    assert np.isinf(distance_field(space, np.array([[-3.0, -3.0]]))).all()


@pytest.mark.parametrize("seed", range(5))
def test_path_is_free_of_collisions_and_as_long_as_the_field_says(seed):
    space = free_space(generate_room(seed))
    cells = np.argwhere(space.free)
    rng = np.random.default_rng(seed)
    goal = space.centre(*cells[rng.integers(len(cells))])
    field = distance_field(space, goal[None])
    start = space.centre(*cells[rng.integers(len(cells))]) + rng.uniform(-0.04, 0.04, size=2)
    path = shortest_path(space, field, start)
    np.testing.assert_allclose(path[0], start)
    np.testing.assert_allclose(path[-1], goal)
    assert np.linalg.norm(np.diff(path[1:], axis=0), axis=1).sum() == pytest.approx(field[space.index(start)], abs=1e-4)
    for here, there in itertools.pairwise(path):
        reached, collided = advance(space, here, there)
        assert not collided
        np.testing.assert_array_equal(reached, there)


def test_no_path_from_or_to_where_one_cannot_stand():
    space = free_space(room())
    field = distance_field(space, np.array([[2.0, 2.0]]))
    assert shortest_path(space, field, np.array([-1.0, 0.0])).shape == (0, 2)
    nowhere = np.full(space.free.shape, np.inf, dtype=np.float32)
    assert shortest_path(space, nowhere, np.array([2.0, 2.0])).shape == (0, 2)


def test_advance_stops_just_before_a_wall():
    space = free_space(room())
    reached, collided = advance(space, np.array([2.05, 2.05]), np.array([9.0, 2.05]))
    assert collided
    assert 4.8 - 1e-3 < reached[0] < 4.8
    assert reached[1] == pytest.approx(2.05)
    assert advance(space, reached, np.array([9.0, 2.05]))[1]


def test_advance_onto_the_edge_of_a_blocked_cell_stays_free():
    space = FreeSpace(np.array([[True, True, False]]), np.zeros(2), 1.0)
    reached, collided = advance(space, np.array([0.5, 0.5]), np.array([2.0, 0.5]))
    assert collided
    assert space.contains(reached)


def test_advance_from_a_blocked_cell_does_not_move():
    space = free_space(room())
    start = np.array([0.05, 0.05])
    reached, collided = advance(space, start, np.array([2.0, 2.0]))
    assert collided
    np.testing.assert_array_equal(reached, start)


@pytest.mark.slow
@pytest.mark.parametrize("slope", [1e-3, 1e-5, 1e-7, 1e-9, 1e-11])
def test_advance_flat_against_an_edge_ends_where_it_can_go_on_from(slope):
    free = np.ones((20, 20), bool)
    free[10:, 5:] = False
    space = FreeSpace(free, np.zeros(2), 0.1)
    start = np.array([0.05, 1.0 - slope])
    reached, collided = advance(space, start, start + np.array([1.5, 1.5 * slope]))
    assert collided
    assert space.contains(reached)
    assert advance(space, reached, reached - [0.0, 0.3])[1] is False


@pytest.mark.parametrize("off", [0.0, 1e-12, -1e-12])
def test_a_walk_to_the_edge_of_a_blocked_cell_is_blocked_whichever_way_it_was_rounded(off):
    free = np.ones((20, 20), bool)
    free[:, 3] = False
    space = FreeSpace(free, np.zeros(2), 0.1)
    # from the middle of a cell a quarter of a metre ends on an edge
    assert advance(space, np.array([0.05, 0.05]), np.array([0.3 + off, 0.05]))[1]
    assert not advance(space, np.array([0.65, 0.05]), np.array([0.4 + off, 0.05]))[1]


@pytest.mark.parametrize("off", [0.0, 1e-12, -1e-12])
def test_what_is_just_a_radius_away_is_not_touched(off):
    # its left side 0.2 m from the middle of the cells of column 19
    space = free_space(room(boxes=[upright_box(2.4 + off, 2.0, 0.5, (0.5, 1.0, 1.0))]), radius=0.2)
    assert space.contains(np.array([1.95, 2.05]))
    assert not space.contains(np.array([2.05, 2.05]))


@pytest.mark.parametrize("off", [0.0, 1e-6, -1e-6])
def test_a_pillar_on_the_edge_of_a_cell_stands_in_both(off):
    pillar = [BOX, 2.0 + off, 1.5, 0, 2.6, 2.1, 2.5, 9, 9, 9]
    space = free_space(room(parts=[[BOX, 0, 0, 0, 5, 4, 2.5, 9, 9, 9], pillar]), radius=0.2)
    assert np.flatnonzero(~space.free[18, 2:48]).tolist() == list(range(16, 26))


def test_advance_never_tunnels():
    rng = np.random.default_rng(7)
    space = random_grid(3, shape=(30, 30), density=0.15)
    cells = np.argwhere(space.free)
    stopped = 0
    for _ in range(300):
        start = space.centre(*cells[rng.integers(len(cells))]) + rng.uniform(-0.045, 0.045, size=2)
        end = start + rng.uniform(-2, 2, size=2)
        reached, collided = advance(space, start, end)
        way = start + np.linspace(0, 1, 400)[:, None] * (reached - start)
        assert all(space.contains(xy) for xy in way)
        if collided:
            stopped += 1
            heading = (end - start) / np.linalg.norm(end - start)
            beyond = reached + np.linspace(0, 4e-4, 41)[:, None] * heading
            assert not all(space.contains(xy) for xy in beyond)
    assert stopped > 100


def test_a_scene_without_a_floor_plan_is_refused():
    with pytest.raises(DataError, match="floor plan"):
        free_space(room(floor=np.zeros((0, 2))))


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
