"""Intervals against worked numbers; reports and statistics of episodes."""

import numpy as np
import pytest

from chat_episodes import ARRIVED, BROKEN, MOVE
from lookact.errors import DataError
from lookact.training.evaluation import (
    bootstrap_interval,
    flat_metrics,
    make_report,
    means_with_intervals,
    show_episodes,
    wilson_interval,
)


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


def test_impossible_numbers_are_refused() -> None:
    with pytest.raises(DataError, match="finite values"):
        bootstrap_interval([])
    with pytest.raises(DataError, match="finite values"):
        bootstrap_interval([1.0, float("nan")])
    with pytest.raises(DataError, match="3 successes in 2 trials"):
        wilson_interval(3, 2)
    with pytest.raises(DataError, match="confidence 95"):
        wilson_interval(1, 2, confidence=95)


def test_a_report_has_wilson_intervals_for_rates_and_the_bootstraps_for_means() -> None:
    numbers = {"success_rate": np.array([1.0, 0.0, 1.0, 1.0]), "turns": np.array([2.0, 4.0, 6.0, 8.0])}
    report = make_report(numbers, rates=("success_rate",), counts={"broken": 1})
    assert report.plain() == {
        "success_rate": 0.75, "turns": 5.0, "broken": 1, "episodes": 4,
        "ci": {"success_rate": list(wilson_interval(3, 4)), "turns": list(bootstrap_interval([2, 4, 6, 8]))},
    }  # fmt: skip
    assert report.metrics("eval") == {"eval/success_rate": 0.75, "eval/turns": 5.0, "eval/broken": 1.0}
    part = means_with_intervals({"turns": numbers["turns"]})
    assert part == {"turns": 5.0, "ci": {"turns": list(bootstrap_interval([2, 4, 6, 8]))}}


def test_groups_of_a_report_join_their_names_and_intervals_are_no_metrics() -> None:
    report = {"psnr": 20.0, "ci": {"psnr": [19, 21]}, "ahead": {"steps": 5, "psnr": 18.0, "ci": {}}}
    assert flat_metrics(report) == {"eval/psnr": 20.0, "eval/ahead_steps": 5.0, "eval/ahead_psnr": 18.0}


class Board:
    def __init__(self) -> None:
        self.seen: list[tuple[str, object, int]] = []

    def image(self, name: str, image: np.ndarray, step: int) -> None:
        self.seen.append((name, image.shape, step))

    def text(self, name: str, text: str, step: int) -> None:
        self.seen.append((name, text, step))


def test_episodes_are_shown_as_strips_and_words_and_broken_ones_are_passed_over() -> None:
    board = Board()
    show_episodes(board, [BROKEN, ARRIVED], 4)
    said = f"Find the bed.\n    {MOVE}"
    assert board.seen == [
        ("rollout/views_0", (8, 16, 3), 4),
        ("rollout/words_0", f"{said}\n{said}\nreturn 1.25", 4),
    ]
