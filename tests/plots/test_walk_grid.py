import numpy as np
import pytest

from lookact.errors import DataError
from lookact.plots.walk_grid import CAPTION, GAP, HEADER, MARGIN, NOTE, TILE, TITLE, Walk, draw_walks

RED, BLUE = (np.full((8, 8, 3), colour, dtype=np.uint8) for colour in ((200, 0, 0), (0, 0, 200)))


def test_a_row_a_room_and_a_column_a_policy():
    first, second = Walk(RED, "not reached", False), Walk(BLUE, "5 turns", True)
    rooms = [("Find the bed.", [first, second]), ("Find the tv.", [second, first])]
    sheet = draw_walks(["random", "after RL"], rooms, note="two rooms")
    assert sheet.shape == (
        2 * MARGIN + HEADER + 2 * (TITLE + TILE + CAPTION) + GAP + NOTE,
        2 * (MARGIN + TILE) + GAP,
        3,
    )
    top, left = MARGIN + HEADER + TITLE + TILE // 2, MARGIN + TILE // 2
    down, right = TITLE + TILE + CAPTION + GAP, TILE + GAP
    assert sheet[top, left].tolist() == sheet[top + down, left + right].tolist() == [200, 0, 0]
    assert sheet[top, left + right].tolist() == sheet[top + down, left].tolist() == [0, 0, 200]


def test_every_policy_needs_a_walk_in_every_room():
    with pytest.raises(DataError, match="2 policies need one walk each in every one of 1 rooms"):
        draw_walks(["random", "after RL"], [("Find the bed.", [Walk(RED, "", False)])], note="")
