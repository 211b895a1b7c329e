import dataclasses
import json

import numpy as np
import PIL.Image
import pytest

from lookact.data.episode_store import EpisodeStore
from lookact.envs.rooms.generate import generate_room
from lookact.errors import DataError
from lookact.plots.navigation import (
    CAPTION,
    GAP,
    HEADER,
    MARGIN,
    NOTE,
    ROOM_GAP,
    TILE,
    TITLE,
    VIEWS,
    WALK,
    Walk,
    arrived,
    chosen,
    draw_curve,
    draw_paths,
    draw_rooms,
    draw_sheet,
    draw_walks,
    grid,
    room_views,
)
from lookact.types import Decision, Episode, FloorMap, Observation, Turn

LEFT = 'I see it far ahead. {"rotation_angle_degrees": 30, "forward_meters": 0.5}'
RED, BLUE = (np.full((8, 8, 3), colour, dtype=np.uint8) for colour in ((200, 0, 0), (0, 0, 200)))


def episode(name="a", *, success=True, room=None):
    none = np.zeros(0, np.float32)
    seen = Observation("Find the bed.", {"head": np.full((8, 8, 3), 90, np.uint8)}, state=np.array([1, 2, 0, 1], "f4"))
    info = {"success": success, "question": "Find the bed."}
    turns = [Turn(seen, Decision(said, none, none > 0), 0.0, False, False, info) for said in (LEFT, "no action here")]
    return Episode(name, 0, 0, tuple(turns), last=seen, floor_map=room)


@pytest.mark.parametrize(
    ("given", "shown"),
    [
        ([True, True, True, False], [True, True, False]),
        ([True, True, True, True], [True, True, True]),
        ([False, False, True, False], [True, False, False]),
        ([False], [False]),
    ],
)
def test_a_failure_is_shown_if_there_is_one(given, shown):
    assert [arrived(each) for each in chosen([episode(success=success) for success in given])] == shown


def test_a_sheet_is_drawn_of_what_an_evaluation_kept(tmp_path):
    store = EpisodeStore(tmp_path / "kept")
    draw_sheet(tmp_path / "kept", tmp_path / "none.png")
    assert not (tmp_path / "none.png").exists()
    store.add(Episode("broken", 0, 0, (), error="no such room"))
    store.add(episode("a", room=FloorMap(np.full((60, 60, 3), 200, np.uint8), (1.0, 2.0), 10.0)))
    draw_sheet(tmp_path / "kept", tmp_path / "plots/sheet.png")
    sheet = np.asarray(PIL.Image.open(tmp_path / "plots/sheet.png"))
    assert sheet.shape[2] == 3
    assert sheet.std() > 20


def test_the_curve_shows_both_rates_and_the_marks(tmp_path):
    lines = [{"step": step, "rollout/success_rate": step / 9} for step in range(1, 9)]
    lines[3]["eval/success_rate"] = 0.4
    (tmp_path / "metrics.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))
    draw_curve(tmp_path, tmp_path / "plots/curve.png", marks=[("random", 0.05)], updates=20)
    assert (tmp_path / "plots/curve.png").stat().st_size > 1000


def test_the_curve_is_drawn_before_the_first_evaluation(tmp_path):
    (tmp_path / "metrics.jsonl").write_text(json.dumps({"step": 1, "rollout/success_rate": 0.0}) + "\n")
    draw_curve(tmp_path, tmp_path / "curve.png", marks=[], updates=20)
    assert (tmp_path / "curve.png").stat().st_size > 1000


def test_paths_are_drawn_of_the_rooms_that_all_policies_walked(tmp_path):
    room = FloorMap(np.full((60, 60, 3), 200, np.uint8), (1.0, 2.0), 10.0)
    for policy, names in (("random", "abc"), ("trained", "bcd")):
        store = EpisodeStore(tmp_path / policy)
        for name in names:
            store.add(episode(name, success=policy == "trained", room=room))
    stores = {policy: tmp_path / policy for policy in ("random", "trained")}
    draw_paths(stores, tmp_path / "paths.png")
    width, height = PIL.Image.open(tmp_path / "paths.png").size
    assert (width, height) == draw_walks_size(columns=2, rows=2)
    draw_paths({"empty": tmp_path / "nobody", **stores}, tmp_path / "none.png")
    assert not (tmp_path / "none.png").exists()


def draw_walks_size(*, columns: int, rows: int) -> tuple[int, int]:
    walk = Walk(np.zeros((8, 8, 3), np.uint8), "", False)
    height, width = draw_walks([""] * columns, [("", [walk] * columns)] * rows, note="").shape[:2]
    return width, height


def test_a_row_a_room_and_a_column_a_policy():
    first, second = Walk(RED, "not reached", False), Walk(BLUE, "5 turns", True)
    rooms = [("Find the bed.", [first, second]), ("Find the tv.", [second, first])]
    sheet = draw_walks(["random", "after RL"], rooms, note="two rooms")
    assert sheet.shape == (
        2 * MARGIN + HEADER + 2 * (TITLE + WALK + CAPTION) + GAP + NOTE,
        2 * (MARGIN + WALK) + GAP,
        3,
    )
    top, left = MARGIN + HEADER + TITLE + WALK // 2, MARGIN + WALK // 2
    down, right = TITLE + WALK + CAPTION + GAP, WALK + GAP
    assert sheet[top, left].tolist() == sheet[top + down, left + right].tolist() == [200, 0, 0]
    assert sheet[top, left + right].tolist() == sheet[top + down, left].tolist() == [0, 0, 200]


def test_every_policy_needs_a_walk_in_every_room():
    with pytest.raises(DataError, match="2 policies need one walk each in every one of 1 rooms"):
        draw_walks(["random", "after RL"], [("Find the bed.", [Walk(RED, "", False)])], note="")


def test_grid_puts_tiles_in_reading_order():
    tiles = [[np.full((TILE, TILE, 3), value, np.uint8) for value in row] for row in [(1, 2), (3,)]]
    sheet = grid(tiles)
    step = TILE + ROOM_GAP
    assert sheet.shape == (2 * step + ROOM_GAP, 2 * step + ROOM_GAP, 3)
    assert [sheet[ROOM_GAP + y * step, ROOM_GAP + x * step, 0] for y, x in [(0, 0), (0, 1), (1, 0)]] == [1, 2, 3]
    assert sheet[0, 0, 0] > 200


def test_a_row_holds_a_map_and_differing_views():
    scene = generate_room(0)
    sheet = draw_rooms([scene])
    assert sheet.shape == (TILE + 2 * ROOM_GAP, (VIEWS + 1) * (TILE + ROOM_GAP) + ROOM_GAP, 3)
    first, *others = room_views(scene)
    assert all(not np.array_equal(first, other) for other in others)


def test_a_room_without_a_walk_is_seen_from_its_middle():
    scene = dataclasses.replace(generate_room(0), trajectory=np.zeros((0, 4, 4)))
    assert len(room_views(scene)) == VIEWS
