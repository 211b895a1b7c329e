import numpy as np
import pytest
from PIL import ImageColor

from lookact.errors import DataError
from lookact.plots.episode_sheet import BAD, GOOD, describe_action, draw_episode, enlarge, stack_sheets, wrap
from lookact.plots.style import load_font

MOVE = 'I see it. {"rotation_angle_degrees": 30, "forward_meters": 0.75}'


def view(value, size=96):
    return np.full((size, size, 3), value, np.uint8)


def count(sheet, colour):
    return int((sheet == ImageColor.getrgb(colour)).all(axis=-1).sum())


@pytest.mark.parametrize(
    ("reply", "signs"),
    [
        (MOVE, "⟲ 30°  ↑ 0.75 m"),
        ('{"rotation_angle_degrees": -90.0, "forward_meters": 0}', "⟳ 90°"),
        ('{"rotation_angle_degrees": 0, "forward_meters": 1.50}', "↑ 1.5 m"),
        ('{"rotation_angle_degrees": 0, "forward_meters": -1}', "↓ 1 m"),
        ('{"rotation_angle_degrees": 0, "forward_meters": 0}', "stays"),
        ('Three chairs. {"answer": 3}', "answers 3"),
        ("I do not know.", ""),
        ('{"rotation_angle_degrees": 30', ""),
    ],
)
def test_actions_in_signs(reply, signs):
    assert describe_action(reply) == signs


def test_lines_fit_and_too_many_words_end_in_an_ellipsis():
    font = load_font(12)
    text = "the wall looks the same on every side and nothing stands out at all"
    lines = wrap(text, font, width=100, lines=20)
    assert " ".join(lines) == text
    assert len(lines) > 3
    cut = wrap(text, font, width=100, lines=2)
    assert cut[0] == lines[0]
    assert cut[1].endswith("…")
    assert all(font.getlength(line) <= 100 for line in [*lines, *cut, *wrap("w" * 99, font, width=100, lines=1)])


def test_small_views_grow_by_whole_numbers_and_large_ones_shrink():
    small = np.arange(96 * 96 * 3, dtype=np.uint32).astype(np.uint8).reshape(96, 96, 3)
    grown = np.asarray(enlarge(small))
    assert grown.shape == (192, 192, 3)
    assert np.array_equal(grown[::2, ::2], small)
    assert np.array_equal(grown[1::2, 1::2], small)
    assert enlarge(np.zeros((480, 640, 3), np.uint8)).size == (200, 150)


def test_views_stand_right_of_the_map_in_reading_order():
    shades = [10, 50, 90, 130, 170]
    sheet = draw_episode([view(s) for s in shades], [MOVE] * 5, view(222, 64), title="T", outcome=True)
    places = [np.argwhere((sheet == shade).all(axis=-1)) for shade in (222, *shades)]
    assert all(len(found) > 0.9 * 192 * 160 for found in places)
    corners = [tuple(found.min(axis=0)) for found in places]
    tops, lefts = zip(*corners)
    assert lefts[0] < lefts[1] < lefts[2] < lefts[3]
    assert lefts[4:] == pytest.approx(lefts[1:3], abs=2)
    assert min(tops[4:]) > max(tops[1:4]) + 192
    # the map is the largest picture, as high as both rows
    assert len(places[0]) > 4 * len(places[1])


def test_the_outcome_is_marked():
    reached = draw_episode([view(9)], [MOVE], None, title="T", outcome=True)
    missed = draw_episode([view(9)], [MOVE], None, title="T", outcome=False)
    assert count(reached, GOOD) > 500
    assert count(reached, BAD) == 0
    assert count(missed, BAD) > 500
    assert count(missed, GOOD) == 0


def test_a_reply_without_an_action_stands_out():
    plain = draw_episode([view(9)], [MOVE], None, title="T", outcome=True)
    unread = draw_episode([view(9)], ["Hm."], None, title="T", outcome=True)
    assert count(plain, BAD) == 0
    assert count(unread, BAD) > 20


def test_a_last_view_may_follow_the_last_reply():
    sheet = draw_episode([view(9), view(99)], [MOVE], None, title="T", outcome=True, outcome_words=("right", "wrong"))
    assert (sheet == 99).all(axis=-1).sum() > 0.9 * 192 * 160


@pytest.mark.parametrize(("views", "replies"), [(0, 0), (1, 2), (3, 1)])
def test_views_and_replies_must_match(views, replies):
    with pytest.raises(DataError, match=f"{views} views and {replies} replies"):
        draw_episode([view(9)] * views, [MOVE] * replies, None, title="T", outcome=True)


def test_long_titles_and_empty_ones_are_drawn():
    wide = draw_episode([view(9)], [MOVE], None, title="word " * 200, outcome=True)
    bare = draw_episode([view(9)], [MOVE], None, title="", outcome=True)
    assert wide.shape == bare.shape


def test_sheets_are_stacked_in_order():
    first, second = np.full((50, 80, 3), 7, np.uint8), np.full((60, 120, 3), 77, np.uint8)
    stack = stack_sheets([first, second])
    assert stack.shape == (110, 120, 3)
    assert np.array_equal(stack[:50, :80], first)
    assert np.array_equal(stack[51:], second[1:])
    with pytest.raises(DataError, match="no sheets"):
        stack_sheets([])
