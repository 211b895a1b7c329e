import numpy as np
import pytest

from lookact.errors import DataError
from lookact.plots.judge_accuracy import OUTCOMES, QueryLog, count_outcomes, draw_judge_accuracy, read_query_log

HEADER = "ground_truth_score_1,ground_truth_score_2,vlm_predicted_label,timestamp,train_iter\n"
NEAR = [(0.1, 0.0, 0), (0.0, 0.2, 0), (0.3, 0.0, -1), (0.0, 0.4, 1)]
"""Right, wrong, undecided, right."""
FAR = [(3.0, 0.0, 0), (0.0, 3.2, 1), (3.4, 0.0, 0), (0.0, 4.0, 0)]
"""Right, right, right, wrong."""
TIES = [(1.0, 1.0, 0), (2.0, 2.0, -1)]


def log_of(rows):
    first, second, verdicts = zip(*rows)
    return QueryLog(np.array(first), np.array(second), np.array(verdicts))


def test_quantile_bins_hold_equally_many_pairs():
    counted = count_outcomes(log_of(FAR + NEAR), bins=2)
    assert counted.counts.tolist() == [[2, 1, 1], [3, 1, 0]]
    # the median lies half way between 0.4 and 3.0
    np.testing.assert_allclose(counted.edges, [0.1, 1.7, 4.0])


def test_equal_width_bins_reach_from_zero_to_the_largest_difference():
    counted = count_outcomes(log_of(NEAR + FAR), bins=4, equal_width=True)
    np.testing.assert_allclose(counted.edges, [0, 1, 2, 3, 4])
    # 3.0 lies on an edge and belongs to the bin above it
    assert counted.counts.tolist() == [[2, 1, 1], [0, 0, 0], [0, 0, 0], [3, 1, 0]]


def test_equal_scores_stand_aside_and_are_counted():
    counted = count_outcomes(log_of(NEAR + TIES), bins=1)
    assert counted.counts.tolist() == [[2, 1, 1]]
    assert counted.ties == 2
    with pytest.raises(DataError, match="all 2 pairs have equal scores"):
        count_outcomes(log_of(TIES))


def test_differences_that_are_all_alike_make_one_bin():
    counted = count_outcomes(log_of([(1.0, 0.0, 0), (0.0, 1.0, 1)]), bins=5)
    assert counted.counts.tolist() == [[2, 0, 0]]


def test_rounding_moves_no_difference_over_an_edge():
    # 0.3 - 0.1 falls short of 0.2, and 0.7 - 0.1 of 0.6, by the last digit
    rows = [(0.1, 0.3, 1), (0.2, 0.0, 0), (0.7, 0.1, 0), (1.0, 0.0, 1), (0.1 + 0.2, 0.3, 0)]
    counted = count_outcomes(log_of(rows), bins=5, equal_width=True)
    assert counted.counts.sum(axis=1).tolist() == [0, 2, 0, 1, 1]
    assert counted.ties == 1
    alike = count_outcomes(log_of([(0.1, 0.3, 1), (0.2, 0.0, 0), (0.4, 0.2, 0)]), bins=2)
    assert alike.counts.tolist() == [[3, 0, 0]]


def test_bar_heights_are_shares_stacked_to_one():
    figure = draw_judge_accuracy(log_of(FAR + NEAR + TIES), title="T", bins=2)
    axes = figure.axes[0]
    heights = {bars.get_label(): [bar.get_height() for bar in bars] for bars in axes.containers}
    assert heights == dict(zip(OUTCOMES, ([0.5, 0.75], [0.25, 0.25], [0.25, 0.0])))
    assert [bar.get_y() for bar in axes.containers[2]] == [0.75, 1.0]
    assert [text.get_text() for text in axes.texts] == ["2", "3", "1", "1", "1"]
    assert [label.get_text() for label in axes.get_xticklabels()] == ["0.1–1.7\nn = 4", "1.7–4.0\nn = 4"]
    legend = [text.get_text() for text in axes.get_legend().get_texts()]
    assert legend == ["correct 62%", "incorrect 25%", "no preference 12%"]
    assert figure.get_supxlabel().startswith("2 pairs with equal scores are left out")


def test_an_empty_bin_is_drawn_as_nothing():
    figure = draw_judge_accuracy(log_of(NEAR + FAR), title="", bins=4, equal_width=True)
    assert [bar.get_height() for bar in figure.axes[0].containers[0]] == [0.5, 0.0, 0.0, 0.75]


def test_a_log_is_read(tmp_path):
    path = tmp_path / "vlm_query_log.csv"
    path.write_text(HEADER + "0.5,0.25,0,1700000000,1\n0.5,0.75,-1,1700000001,1\n")
    log = read_query_log(path)
    assert log.first.tolist() == [0.5, 0.5]
    assert log.second.tolist() == [0.25, 0.75]
    assert log.verdicts.tolist() == [0, -1]


@pytest.mark.parametrize(
    ("text", "line"),
    [
        ("", "is empty"),
        (HEADER, "holds no rows"),
        ("ground_truth_score_1,ground_truth_score_2\n1,2\n", "has no column vlm_predicted_label"),
        (HEADER + "1,2,1,0,0\n1,2,3,0,0\n", "row 2 has the verdict 3: expected 0, 1 or -1"),
        (HEADER + "1,,1,0,0\n", "has '' under ground_truth_score_2"),
    ],
)
def test_a_bad_log_is_one_clear_line(tmp_path, text, line):
    path = tmp_path / "vlm_query_log.csv"
    path.write_text(text)
    with pytest.raises(DataError, match=line):
        read_query_log(path)
