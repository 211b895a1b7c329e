import json

import numpy as np
import pytest

from lookact.plots.judge_accuracy import count_outcomes, read_query_log
from lookact.recipes.pref_sac.config import Asking, Teaching
from lookact.recipes.pref_sac.judge import HELD_OUT, REPORT, clear_accuracy, measure_judge, rates, teach_judge
from lookact.recipes.pref_sac.judge_data import LabelledImages
from lookact.recipes.pref_sac.service import JudgeService
from lookact.types import Preference

GOAL = "to be bright"


def bright_gallery(count, seed):
    """Pictures of one grey each, and how bright they are."""
    light = np.random.default_rng(seed).uniform(0.0, 1.0, count)
    images = np.broadcast_to((255 * light).astype(np.uint8)[:, None, None, None], (count, 32, 32, 3)).copy()
    return LabelledImages(images, light, light[:, None].astype(np.float32))


class Eyes:
    """Prefers the brighter picture where it is brighter by `doubt`."""

    def __init__(self, doubt=0.0, upside_down=False):
        self.doubt, self.upside_down = doubt, upside_down
        self.counts = {"unparsable": 0}

    def compare(self, pairs, goal):
        assert goal == GOAL
        gaps = [float(two.mean()) - float(one.mean()) for one, two in pairs]
        verdicts = [-1 if abs(gap) <= 255 * self.doubt else int((gap > 0) != self.upside_down) for gap in gaps]
        return [Preference(*pair, verdict) for pair, verdict in zip(pairs, verdicts)]


def test_rates_count_decided_pairs_with_an_order():
    verdicts, first, second = np.array([1, 0, -1, 1]), np.array([0.0, 0.0, 0.0, 2.0]), np.array([1.0, 1.0, 1.0, 2.0])
    told = rates(verdicts, first, second, np.ones(4, bool))
    # of the four one is undecided and one has no right answer
    assert (told["pairs"], told["accuracy"], told["no_preference_rate"]) == (4, 0.5, 0.25)
    none = rates(verdicts, first, second, np.zeros(4, bool))
    assert (none["pairs"], none["accuracy"], none["no_preference_rate"]) == (0, None, None)


@pytest.mark.parametrize(("upside_down", "accuracy"), [(False, 1.0), (True, 0.0)])
def test_a_report_tells_how_good_a_judge_is_by_difficulty(tmp_path, upside_down, accuracy):
    judge = Eyes(doubt=0.1, upside_down=upside_down)
    report = measure_judge(judge, bright_gallery(50, 0), GOAL, pairs=300, seed=0, folder=tmp_path)
    assert report["clear"]["accuracy"] == accuracy
    assert report["clear"]["no_preference_rate"] == 0.0
    easy, hard = report["by_difficulty"][-1], report["by_difficulty"][0]
    assert hard["no_preference_rate"] == 1.0
    assert easy["accuracy"] == accuracy
    assert sum(row["pairs"] for row in report["by_difficulty"]) == 300
    assert json.loads((tmp_path / REPORT).read_text())["clear"]["pairs"] == report["clear"]["pairs"]
    assert clear_accuracy(report).startswith(f"{accuracy:.0%} of")


def test_the_held_out_pairs_can_be_drawn(tmp_path):
    measure_judge(Eyes(), bright_gallery(50, 0), GOAL, pairs=100, seed=0, folder=tmp_path)
    counted = count_outcomes(read_query_log(tmp_path / HELD_OUT))
    assert counted.counts[:, 0].sum() + counted.ties == 100


@pytest.mark.slow
def test_a_tiny_vlm_learns_to_judge_and_says_so_over_http(tmp_path):
    teaching = Teaching(pictures=300, held_out=60, looks=3, lessons=1200, epochs=2)
    folder = teach_judge(tmp_path / "model", bright_gallery(300, 0), GOAL, teaching, seed=0)
    assert not list(tmp_path.glob(".tmp-*"))
    service = JudgeService(Asking(), checkpoint=folder, folder=tmp_path)
    try:
        report = measure_judge(service, bright_gallery(60, 1), GOAL, pairs=120, seed=0, folder=tmp_path)
    finally:
        service.close()
    assert report["clear"]["accuracy"] > 0.9
    assert report["counts"]["unparsable"] < 6
    assert report["counts"]["pairs"] == 120
