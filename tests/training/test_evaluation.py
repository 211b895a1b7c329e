"""Intervals against worked numbers, and the scoring of a predictions file."""

import dataclasses
import json
from pathlib import Path

import numpy as np
import pytest

from lookact.errors import DataError
from lookact.text.answers import TASKS
from lookact.training.evaluation import bootstrap_interval, load_predictions, score_predictions, wilson_interval


def row(number: int, kind: str, truth: str, reply: str) -> dict[str, object]:
    return {"id": number, "dataset": "generated", "question_type": kind, "ground_truth": truth, "prediction": reply}


def test_wilson_by_hand() -> None:
    # z = 1.959964, z^2 = 3.841459; 8 of 10: middle (0.8 + 0.192073) / 1.384146 = 0.716740,
    # half 1.959964 / 1.384146 * sqrt(0.016 + 0.009604) = 0.226578
    assert wilson_interval(8, 10) == pytest.approx((0.490162, 0.943318), abs=2e-6)
    # no success in 20: the upper bound is z^2 / (n + z^2) = 3.841459 / 23.841459
    assert wilson_interval(0, 20) == pytest.approx((0.0, 0.161125), abs=1e-6)
    assert wilson_interval(20, 20) == pytest.approx((0.838875, 1.0), abs=1e-6)
    # z = 1 for a confidence of 0.682689: 1 of 1 has the lower bound 1 / (1 + 1)
    assert wilson_interval(1, 1, confidence=0.6826894921) == pytest.approx((0.5, 1.0), abs=1e-6)


def test_wilson_is_symmetric_and_narrows() -> None:
    low, high = wilson_interval(3, 17)
    assert wilson_interval(14, 17) == pytest.approx((1 - high, 1 - low))
    widths = [np.diff(wilson_interval(n // 2, n))[0] for n in (2, 20, 200, 2000)]
    assert widths == sorted(widths, reverse=True)
    assert wilson_interval(0, 0) == (0.0, 1.0)


def test_wilson_covers_the_truth_as_often_as_it_says() -> None:
    draws = np.random.default_rng(0).binomial(40, 0.3, size=4000)
    covered = [low <= 0.3 <= high for low, high in (wilson_interval(int(hits), 40) for hits in draws)]
    assert np.mean(covered) == pytest.approx(0.95, abs=0.02)


def test_bootstrap_of_a_constant_is_a_point() -> None:
    assert bootstrap_interval([0.4] * 7) == pytest.approx((0.4, 0.4))


def test_bootstrap_of_one_coin_flip_pair() -> None:
    # the mean of two draws from {0, 1} is 0, 1/2 or 1 with probabilities 1/4, 1/2, 1/4
    assert bootstrap_interval([0, 1]) == (0.0, 1.0)
    assert bootstrap_interval([0, 1], confidence=0.4) == (0.5, 0.5)


def test_bootstrap_matches_the_normal_interval_of_many_values() -> None:
    values = np.random.default_rng(1).normal(5, 2, size=3000)
    low, high = bootstrap_interval(values, resamples=4000)
    half = 1.96 * values.std() / np.sqrt(3000)
    assert low == pytest.approx(values.mean() - half, abs=0.1 * half)
    assert high == pytest.approx(values.mean() + half, abs=0.1 * half)


def test_bootstrap_is_the_same_for_the_same_seed_only() -> None:
    values = np.random.default_rng(2).random(50)
    assert bootstrap_interval(values) == bootstrap_interval(values)
    assert bootstrap_interval(values) != bootstrap_interval(values, seed=1)


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


def test_impossible_numbers_are_refused() -> None:
    with pytest.raises(DataError, match="finite values"):
        bootstrap_interval([])
    with pytest.raises(DataError, match="finite values"):
        bootstrap_interval([1.0, float("nan")])
    with pytest.raises(DataError, match="3 successes in 2 trials"):
        wilson_interval(3, 2)
    with pytest.raises(DataError, match="confidence 95"):
        wilson_interval(1, 2, confidence=95)


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
