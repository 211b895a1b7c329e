import pytest

from lookact.envs.rooms.experts.sentences import apart, concluded, counted, in_view, located, never_seen, out_of_view


@pytest.mark.parametrize(
    ("bearing", "distance", "expected"),
    [
        (0, 1.0, "I see it near ahead."),
        (30, 1.0, "I see it near on the left."),
        (-30, 3.0, "I see it far on the right."),
    ],
)
def test_what_is_in_view_is_told_with_side_and_distance(bearing, distance, expected):
    assert in_view(bearing, distance) == expected


def test_what_was_seen_before_is_told_with_its_side():
    sides = [out_of_view(bearing) for bearing in (0, 90, -90, 170, -170)]
    assert sides == [
        f"It is out of view {side}." for side in ("ahead", "on the left", "on the right", "behind", "behind")
    ]


def test_what_was_never_seen():
    assert never_seen() == "Not in view."


@pytest.mark.parametrize("off", [0.0, 2e-7, -2e-7])
def test_rounding_changes_no_sentence(off):
    assert in_view(15.0 + off, 2.0 + off) == "I see it far ahead."
    assert out_of_view(-135.0 + off) == "It is out of view on the right."
    assert located("bed", 0.0, 1.25 + off) == "The bed is 1.5 m ahead."


def test_what_an_answer_rests_on():
    assert counted(1, 3) == "1 new, 3 so far."
    assert [apart("tv monitor", 1.8), concluded("left")] == ["tv monitor: 2 m.", "It is left."]
