import numpy as np
import pytest

from lookact.rewards.functions import answer_score, format_fault, turn_taken
from lookact.types import Decision, Episode, Observation, Turn


def turn(kind="object_counting", *, prediction=None, valid=True, score=0.0):
    info = {
        "question_type": kind,
        "valid_action": valid,
        "answered": prediction is not None,
        "prediction": prediction or "",
        "answer_reward": score,
    }
    nothing = np.zeros(0, np.float32)
    return Turn(Observation(), Decision("", nothing, nothing.astype(bool)), 0.0, prediction is not None, False, info)


def episode(*turns):
    return Episode("e", 0, 0, turns)


def test_the_answer_is_paid_in_its_own_turn():
    assert answer_score(episode(turn(), turn(prediction="2", score=0.4))) == [0.0, 0.4]


def test_turns_that_do_not_answer_are_counted():
    assert turn_taken(episode(turn(), turn(valid=False), turn(prediction="2"))) == [-1.0, -1.0, 0.0]


@pytest.mark.parametrize(
    ("kind", "prediction", "fault"),
    [
        ("object_counting", "3", 0.0),
        ("object_abs_distance", " 2.5 ", 0.0),
        ("object_counting", "B", -1.0),
        ("object_rel_distance", "B", 0.0),
        ("object_rel_distance", "3", -1.0),
    ],
)
def test_an_answer_must_be_of_the_kind_asked_for(kind, prediction, fault):
    assert format_fault(episode(turn(kind, prediction=prediction))) == [fault]


def test_a_reply_that_is_no_action_is_a_fault_and_a_move_is_none():
    assert format_fault(episode(turn(valid=False), turn())) == [-1.0, 0.0]
