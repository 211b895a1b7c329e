"""The scoring of a predictions file by VSI-Bench's rules, against worked numbers."""

import dataclasses
import json
from pathlib import Path

import pytest

from lookact.errors import DataError
from lookact.text.answers import TASKS
from lookact.training.vsi_scoring import (
    best_constant,
    compare_reports,
    load_predictions,
    score_predictions,
    vsi_metrics,
    vsi_report,
)


def row(number: int, kind: str, truth: str, reply: str) -> dict[str, object]:
    return {"id": number, "dataset": "generated", "question_type": kind, "ground_truth": truth, "prediction": reply}


def test_scores_by_hand() -> None:
    rows = [
        row(1, "object_counting", "4", "4"),  # 1
        row(2, "object_counting", "4", "5"),  # off by a quarter: six of ten thresholds, 0.6
        row(3, "object_rel_direction_easy", "A", "A. left"),  # 1
        row(4, "object_rel_direction_easy", "B", "A"),  # 0
        row(5, "object_rel_direction_hard", "C", "c."),  # 1
        row(6, "route_planning", "B", "I cannot tell"),  # 0
    ]
    report = score_predictions(rows)
    means = {name: score.mean for name, score in report.per_type.items()}
    assert means == pytest.approx(
        {"object_counting": 0.8, "object_rel_direction_easy": 0.5, "object_rel_direction_hard": 1, "route_planning": 0}
    )
    # a task is the mean of its types, not of its questions: (0.5 + 1) / 2
    tasks = {name: score.mean for name, score in report.per_task.items()}
    assert tasks == pytest.approx({"count": 0.8, "relative_direction": 0.75, "route_planning": 0})
    assert report.per_task["relative_direction"].questions == 3
    assert report.overall.mean == pytest.approx((0.8 + 0.75 + 0) / 3)
    assert set(report.missing) == set(TASKS) - set(tasks)


def test_intervals_resample_within_types() -> None:
    # counting is always 1 and routes always 0: whatever is drawn, the overall score stays 1/2
    rows = [row(n, "object_counting", "2", "2") for n in range(3)] + [row(9, "route_planning", "A", "B")]
    report = score_predictions(rows)
    assert (report.overall.low, report.overall.mean, report.overall.high) == pytest.approx((0.5, 0.5, 0.5))
    # one of two right: the type's interval is everything, and half of it overall beside a constant
    mixed = score_predictions(
        [row(1, "route_planning", "A", "A"), row(2, "route_planning", "A", "B"), row(3, "object_counting", "2", "2")]
    )
    assert (mixed.per_type["route_planning"].low, mixed.per_type["route_planning"].high) == (0.0, 1.0)
    assert (mixed.overall.low, mixed.overall.high) == pytest.approx((0.5, 1.0))


def test_more_questions_narrow_the_interval() -> None:
    few, many = (
        score_predictions([row(n, "route_planning", "A", "AB"[n % 2]) for n in range(size)]).overall
        for size in (20, 2000)
    )
    assert many.high - many.low < 0.2 * (few.high - few.low)
    assert few.low < 0.5 < few.high


def test_repeated_rows_count_once_and_second_answers_are_refused() -> None:
    once = [row(1, "route_planning", "A", "A"), row(2, "route_planning", "A", "B")]
    twice = score_predictions([*once, row(1, "route_planning", "A", "A")])
    assert twice.duplicates == 1
    assert dataclasses.replace(twice, duplicates=0) == score_predictions(once)
    with pytest.raises(DataError, match="row 3 answers question 1 a second time"):
        score_predictions([*once, row(1, "route_planning", "A", "C")])


def test_bad_rows_are_named() -> None:
    with pytest.raises(DataError, match="row 1 has the unknown type 'smell'"):
        score_predictions([row(1, "smell", "A", "A")])
    with pytest.raises(DataError, match="row 1 lacks ground_truth, prediction"):
        score_predictions([{"id": 1, "question_type": "route_planning"}])
    with pytest.raises(DataError, match="no questions"):
        score_predictions([])


def test_a_report_becomes_json_and_predictions_are_read(tmp_path: Path) -> None:
    rows = [row(1, "object_counting", "4", "4"), row(2, "route_planning", "A", "A")]
    path = tmp_path / "predictions.jsonl"
    path.write_text("\n".join(json.dumps(entry) for entry in rows) + "\n\n")
    assert load_predictions(path) == rows
    text = json.dumps(dataclasses.asdict(score_predictions(load_predictions(path))))
    assert json.loads(text)["overall"] == {"mean": 1.0, "low": 1.0, "high": 1.0, "questions": 2}
    path.write_text('{"id": 1}\n{"id": 2')
    with pytest.raises(DataError, match="line 2 is not a JSON object"):
        load_predictions(path)


def reports(*said: str) -> dict[str, dict[str, object]]:
    truths = [("object_counting", "2"), ("object_counting", "4"), ("object_rel_distance", "B")]
    rows = [row(n, *asked, answer) | {"turns": 2} for n, (asked, answer) in enumerate(zip(truths, said))]
    return {"greedy": vsi_report(rows)}


def test_start_end_and_best_constant_stand_beside_each_other_type_by_type() -> None:
    compared = compare_reports(reports("", "4", "A"), reports("2", "4", "B"))
    start, end, best = (compared[column]["greedy"] for column in ("before", "after", "best_constant"))
    assert (start["object_counting"], end["object_counting"]) == (0.5, 1.0)
    assert (start["score"], end["score"]) == (0.25, 1.0)
    assert (start["answered"], end["answered"]) == (pytest.approx(2 / 3), 1.0)
    assert end["ci"]["object_rel_distance"] == [1.0, 1.0]
    # "2" is half of 4, which one threshold in ten forgives; "4" is twice 2, which none does
    assert best == pytest.approx({"score": 0.775, "object_counting": 0.55, "object_rel_distance": 1.0})


def test_the_tracker_is_given_the_score_and_those_of_the_types() -> None:
    metrics = vsi_metrics(reports("", "4", "A")["greedy"])
    assert metrics == pytest.approx(
        {"eval/score": 0.25, "eval/answered": 2 / 3, "eval/turns": 2.0,
         "eval/score_object_counting": 0.5, "eval/score_object_rel_distance": 0.0}
    )  # fmt: skip


def test_the_best_constant_guess_is_found_type_by_type():
    rows = [{"question_type": "object_counting", "ground_truth": truth} for truth in ("2", "2", "3")]
    rows += [{"question_type": "object_rel_distance", "ground_truth": letter} for letter in "ABBB"]
    best = best_constant(rows)
    # "2" is a third off 3, which 4 of the 10 thresholds forgive
    assert best["per_type"] == pytest.approx({"object_counting": 2.4 / 3, "object_rel_distance": 0.75})
    assert best["score"] == pytest.approx((0.8 + 0.75) / 2)
