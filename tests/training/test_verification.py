"""Verdicts by hand: equal digits, intervals that overlap, touch or do not, and numbers without one."""

import pytest

from lookact.training.verification import compare_results


def verdicts(recorded, again):
    return {row.name: row.verdict for row in compare_results(recorded, again)}


@pytest.mark.parametrize(
    ("value", "interval", "expected"),
    [
        (0.5, [0.4, 0.6], "same"),
        (0.58, [0.5, 0.7], "agrees"),
        (0.7, [0.6, 0.8], "agrees"),
        (0.75, [0.61, 0.8], "differs"),
        (0.2, [0.1, 0.39], "differs"),
    ],
)
def test_intervals_that_overlap_agree(value, interval, expected):
    recorded = {"greedy": {"success_rate": 0.5, "ci": {"success_rate": [0.4, 0.6]}}}
    again = {"greedy": {"success_rate": value, "ci": {"success_rate": interval}}}
    assert verdicts(recorded, again) == {"greedy.success_rate": expected}


def test_a_number_without_an_interval_is_never_said_to_differ():
    assert verdicts({"episodes": 8, "turns": 2.0}, {"episodes": 8, "turns": 2.5}) == {
        "episodes": "same",
        "turns": "changed",
    }


def test_nan_is_the_same_as_nan_and_time_words_and_what_one_side_lacks_do_not_count():
    recorded = {"a": float("nan"), "seconds": {"sft": 1.0}, "cpu_seconds": 3.0, "gone": 1.0, "name": "x", "on": True}
    again = {"a": float("nan"), "seconds": {"sft": 2.0}, "cpu_seconds": 9.0, "new": 1.0, "name": "y", "on": False}
    assert verdicts(recorded, again) == {"a": "same"}


def test_a_torn_interval_is_none():
    recorded = {"x": 1.0, "ci": {"x": [0.0]}}
    assert verdicts(recorded, {"x": 2.0, "ci": {"x": [1.0, 3.0]}}) == {"x": "changed"}
