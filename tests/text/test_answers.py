import pytest
from hypothesis import given
from hypothesis import strategies as st

from lookact.errors import DataError
from lookact.text.answers import (
    NUMERIC_TYPES,
    QUESTION_TYPES,
    TASKS,
    aggregate,
    is_numeric,
    mean_relative_accuracy,
    score_answer,
)


def test_ten_types_make_eight_tasks():
    assert len(QUESTION_TYPES) == 10
    assert len(TASKS) == 8
    assert [name for name in QUESTION_TYPES if is_numeric(name)] == list(NUMERIC_TYPES)


@pytest.mark.parametrize(
    ("reply", "score"),
    [("A", 1), ("a", 1), ("A.", 1), (" A. The chair", 1), ("A...", 1), ("B", 0), ("", 0), ("AB", 0), ("The A", 0)],
)
def test_letters_match_by_their_first_word(reply, score):
    assert score_answer("route_planning", reply, "A") == score


@pytest.mark.parametrize(
    ("predicted", "score"),
    [
        ("10", 1.0),
        ("9.5", 1.0),  # off by exactly 5%: every threshold holds
        ("10.5", 1.0),
        ("9.49", 0.9),
        ("9", 0.9),
        ("8.5", 0.8),
        ("8", 0.7),
        ("7.5", 0.6),
        ("7", 0.5),
        ("6.5", 0.4),
        ("6", 0.3),
        ("5.5", 0.2),
        ("5", 0.1),  # off by exactly half: the loosest threshold holds
        ("15", 0.1),
        ("4.99", 0.0),
        ("-10", 0.0),
    ],
)
def test_every_threshold_of_the_mean_relative_accuracy(predicted, score):
    assert score_answer("object_abs_distance", predicted, "10") == score


def test_thresholds_hold_at_every_scale_of_the_truth():
    for true in (0.1, 0.3, 0.7, 1.1, 2.9, 33.3, 1234.5):
        for step in range(1, 11):
            assert mean_relative_accuracy(true * (1 - step / 20), true) == (11 - step) / 10
            assert mean_relative_accuracy(true * (1 + step / 20), true) == (11 - step) / 10


@pytest.mark.parametrize(
    ("reply", "score"),
    [("3.", 1), ("3 chairs", 1), ("3.0", 1), ("three", 0), ("", 0), ("nan", 0), ("inf", 0), ("-inf", 0), ("1e999", 0)],
)
def test_numbers_that_can_not_be_read_score_nothing(reply, score):
    assert score_answer("object_counting", reply, "3") == score


def test_truth_of_zero_must_be_met_exactly():
    assert score_answer("object_counting", "0", "0") == 1
    assert score_answer("object_counting", "0.001", 0) == 0
    assert score_answer("object_counting", "none", 0) == 0


def test_truth_may_be_a_number():
    assert score_answer("room_size_estimation", "19", 20.0) == 1.0


def test_unknown_types_are_refused():
    with pytest.raises(DataError, match="object_weight"):
        score_answer("object_weight", "3", "3")
    with pytest.raises(DataError, match="object_weight"):
        aggregate([("object_weight", 1.0)])


def test_aggregate_weighs_types_in_a_task_and_tasks_overall_alike():
    rows = [("object_counting", 0.5), ("object_counting", 1.0), ("object_counting", 0.0)]
    rows += [("object_rel_direction_easy", 1.0)] * 9
    rows += [("object_rel_direction_medium", 0.0), ("object_rel_direction_hard", 0.5)]
    scores = aggregate(rows)
    assert scores.per_type["object_counting"] == 0.5
    assert scores.per_type["object_rel_direction_easy"] == 1.0
    assert scores.per_task == {"count": 0.5, "relative_direction": 0.5}
    assert aggregate([*rows, ("route_planning", 1.0)]).overall == pytest.approx(2 / 3)


def test_nothing_to_aggregate():
    with pytest.raises(DataError, match="no questions"):
        aggregate([])


@given(st.sampled_from(QUESTION_TYPES), st.text(), st.text() | st.floats())
def test_any_reply_scores_between_nothing_and_one(question_type, reply, truth):
    assert 0 <= score_answer(question_type, reply, truth) <= 1
