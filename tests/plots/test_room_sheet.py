import dataclasses

import numpy as np

from lookact.envs.rooms.generate import generate_room
from lookact.plots.room_sheet import GAP, TILE, VIEWS, draw_rooms, grid, look_around


def test_grid_puts_tiles_in_reading_order():
    tiles = [[np.full((TILE, TILE, 3), value, np.uint8) for value in row] for row in [(1, 2), (3,)]]
    sheet = grid(tiles)
    step = TILE + GAP
    assert sheet.shape == (2 * step + GAP, 2 * step + GAP, 3)
    assert [sheet[GAP + y * step, GAP + x * step, 0] for y, x in [(0, 0), (0, 1), (1, 0)]] == [1, 2, 3]
    assert sheet[0, 0, 0] > 200


def test_a_row_holds_a_map_and_differing_views():
    scene = generate_room(0)
    sheet = draw_rooms([scene])
    assert sheet.shape == (TILE + 2 * GAP, (VIEWS + 1) * (TILE + GAP) + GAP, 3)
    first, *others = look_around(scene)
    assert all(not np.array_equal(first, other) for other in others)


def test_a_room_without_a_walk_is_seen_from_its_middle():
    scene = dataclasses.replace(generate_room(0), trajectory=np.zeros((0, 4, 4)))
    assert len(look_around(scene)) == VIEWS
