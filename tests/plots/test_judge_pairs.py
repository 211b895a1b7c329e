import numpy as np
import pytest

from lookact.algorithms.judge_diary import JudgeDiary, read_diary
from lookact.errors import DataError
from lookact.plots.judge_pairs import choose_pairs, draw_pairs, outcome_of
from lookact.types import Preference


@pytest.fixture
def diary(tmp_path):
    """Ten pairs whose scores lie 0 to 9 apart, the second better; the judge says 1 of even ones, 0 of odd ones."""
    images = [np.full((8, 8, 3), light, np.uint8) for light in (0, 255)]
    told = [Preference(*images, int(i % 2 == 0), f"reply {i}") for i in range(10)]
    scores = np.array([[0.0, float(i)] for i in range(10)])
    JudgeDiary(tmp_path).extend(0, "to shine", ["which?"], told, scores)
    return read_diary(tmp_path)


def test_outcomes_are_told_by_the_truth(diary):
    assert [outcome_of(judged) for judged in diary[:3]] == ["undecided", "wrong", "right"]


def test_pairs_are_chosen_from_the_hardest_to_the_easiest(diary):
    assert [judged.pair for judged in choose_pairs(diary, count=4)] == [0, 3, 6, 9]
    assert [judged.pair for judged in choose_pairs(diary, count=9, shown="wrong")] == [1, 3, 5, 7, 9]
    with pytest.raises(DataError, match="none of the 1 pairs is right"):
        choose_pairs(diary[:1], count=1, shown="right")


def test_a_drawn_pair_shows_both_pictures_scores_verdict_and_words(diary):
    figure = draw_pairs(choose_pairs(diary, count=2, shown="wrong"))
    first, second = figure.subfigs
    assert [axes.get_title(loc="left") for axes in first.axes] == ["0: true score 0", "1: true score 1"]
    assert [axes.images[0].get_array().mean() for axes in second.axes] == [0, 255]
    assert first.get_suptitle() == "round 0, pair 1: wrong, verdict 0, truth 1"
    assert second.get_supxlabel() == "reply 9"
    assert figure.get_suptitle() == "The goal is to shine."
