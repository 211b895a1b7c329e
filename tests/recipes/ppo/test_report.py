import pytest

from lookact.recipes.ppo.report import plain_report, side_by_side


def row(number, kind, truth, said):
    return {"id": number, "dataset": "generated", "question_type": kind, "ground_truth": truth, "prediction": said,
            "turns": 2}  # fmt: skip


def reports(*said):
    truths = [("object_counting", "2"), ("object_counting", "4"), ("object_rel_distance", "B")]
    return {"greedy": plain_report([row(n, *asked, answer) for n, (asked, answer) in enumerate(zip(truths, said))])}


def test_start_end_and_constant_guess_stand_beside_each_other_type_by_type():
    told = side_by_side(reports("", "4", "A"), reports("2", "4", "B"))
    start, end, best = (told[column]["greedy"] for column in ("before", "after", "best_constant"))
    assert (start["object_counting"], end["object_counting"]) == (0.5, 1.0)
    assert (start["score"], end["score"]) == (0.25, 1.0)
    assert (start["answered"], end["answered"]) == (pytest.approx(2 / 3), 1.0)
    assert end["ci"]["object_rel_distance"] == [1.0, 1.0]
    # "2" is half of 4, which one threshold in ten forgives; "4" is twice 2, which none does
    assert best == pytest.approx({"score": 0.775, "object_counting": 0.55, "object_rel_distance": 1.0})
