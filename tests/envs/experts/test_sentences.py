import pytest

from lookact.envs.experts.sentences import in_view, never_seen, out_of_view


@pytest.mark.parametrize(
    ("bearing", "distance", "expected"),
    [
        (0, 1.0, "I see the chair near ahead."),
        (30, 1.0, "I see the chair near on the left."),
        (-30, 3.0, "I see the chair far on the right."),
    ],
)
def test_what_is_in_view_is_told_with_side_and_distance(bearing, distance, expected):
    assert in_view("chair", bearing, distance) == expected


def test_what_was_seen_before_is_told_with_its_side():
    sides = [out_of_view("bed", bearing) for bearing in (0, 90, -90, 170, -170)]
    assert sides == [
        f"The bed is out of view {side}." for side in ("ahead", "on the left", "on the right", "behind", "behind")
    ]


def test_what_was_never_seen():
    assert never_seen("bed") == "No bed in view."
