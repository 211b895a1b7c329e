import numpy as np
import pytest

from lookact.errors import DataError
from lookact.plots.learning_curve import draw_learning_curve, moving_average, spread, summarise
from lookact.plots.style import GREY


def draw(curves, **options):
    figure = draw_learning_curve(curves, **{"title": "T", "x_label": "step", "y_label": "rate"} | options)
    return figure, figure.axes[0]


def line_of(axes, label):
    return next(line for line in axes.lines if line.get_label() == label)


def texts(figure):
    return [text.get_text() for text in figure.axes[0].texts]


def test_moving_average_is_the_mean_of_the_last_values():
    assert moving_average([1.0, 3.0, 5.0, 9.0], 2).tolist() == [1.0, 2.0, 4.0, 7.0]
    assert moving_average([1.0, 3.0, 5.0], 1).tolist() == [1.0, 3.0, 5.0]
    assert moving_average([2.0, 4.0], 9).tolist() == [2.0, 3.0]


def test_seeds_are_summarised_where_all_of_them_are():
    # the second seed begins later and has no point at 20: it is 4 there, half way from 3 to 5
    summary = summarise([([0, 10, 20, 30], [9.0, 1.0, 2.0, 3.0]), ([10, 30, 40], [3.0, 5.0, 8.0])])
    assert summary.steps.tolist() == [10.0, 20.0, 30.0]
    assert summary.mean.tolist() == [2.0, 3.0, 4.0]
    assert summary.low.tolist() == [1.0, 2.0, 3.0]
    assert summary.high.tolist() == [3.0, 4.0, 5.0]


def test_seeds_without_a_common_step_are_refused():
    with pytest.raises(DataError, match="one begins at 5, another ends at 2"):
        summarise([([1, 2], [0, 0]), ([5, 6], [0, 0])])


def test_labels_move_as_little_as_keeps_them_apart():
    np.testing.assert_allclose(spread([0.1, 0.9], 0.2), [0.1, 0.9])
    np.testing.assert_allclose(spread([0.52, 0.48, 0.9], 0.1), [0.55, 0.45, 0.9])


def test_the_mean_the_band_and_each_seed_are_drawn():
    figure, axes = draw({"RLOO": [([0, 1], [0.0, 0.4]), ([0, 1], [0.2, 0.8])]})
    np.testing.assert_allclose(line_of(axes, "RLOO").get_xydata(), [[0, 0.1], [1, 0.6]])
    raw = [line.get_ydata().tolist() for line in axes.lines if line.get_gid() == "raw"]
    assert raw == [[0.0, 0.4], [0.2, 0.8]]
    band = axes.collections[0].get_paths()[0].get_extents()
    np.testing.assert_allclose([band.y0, band.y1], [0.0, 0.8])
    assert "RLOO" in texts(figure)
    assert figure.get_supxlabel() == "bold: mean of 2 seeds  ·  band: lowest to highest  ·  thin: each seed"


def test_one_smoothed_curve_lies_over_its_raw_line_and_says_so():
    figure, axes = draw({"a": [([1, 2, 3], [0.0, 1.0, 0.5])]}, window=2)
    assert line_of(axes, "a").get_ydata().tolist() == [0.0, 0.5, 0.75]
    assert [line.get_ydata().tolist() for line in axes.lines if line.get_gid() == "raw"] == [[0.0, 1.0, 0.5]]
    assert not axes.collections
    assert figure.get_supxlabel() == "bold: mean of the last 2 points  ·  thin: as recorded"


def test_seeds_are_smoothed_before_they_are_averaged():
    figure, axes = draw({"a": [([1, 2], [0.0, 1.0]), ([1, 2], [0.5, 1.0])], "b": [([1, 2], [0.0, 0.5])]}, window=2)
    assert line_of(axes, "a").get_ydata().tolist() == [0.25, 0.625]
    assert figure.get_supxlabel().startswith("bold: mean of 1–2 seeds, each over its last 2 points  ·  band")


def test_one_plain_curve_needs_no_note():
    figure, axes = draw({"a": [([1, 2], [0.0, 1.0])]})
    assert len(axes.lines) == 1
    assert figure.get_supxlabel() == ""


def test_marks_are_level_lines_with_names():
    figure, axes = draw({"a": [([1, 2], [0.2, 0.9])]}, marks=[("random", 0.1)])
    level = next(line for line in axes.lines if line.get_color() == GREY)
    assert list(level.get_ydata()) == [0.1, 0.1]
    assert texts(figure) == ["a", "random"]


@pytest.mark.parametrize(("values", "bottom"), [([0.2, 0.9], 0.0), ([0.8, 0.9], 0.795), ([-1.0, 1.0], -1.1)])
def test_zero_is_shown_where_it_is_near(values, bottom):
    assert draw({"a": [([1, 2], values)]})[1].get_ylim()[0] == pytest.approx(bottom)


@pytest.mark.parametrize("values", [[0.0, 0.0], [0.0, 1.4e-17]])
@pytest.mark.filterwarnings("error")
def test_a_curve_that_stayed_at_zero_lies_on_the_axis(values):
    assert draw({"a": [([1, 2], values)]})[1].get_ylim() == (0.0, 1.0)


def test_labels_and_title_are_where_they_belong():
    _, axes = draw({"a": [([1, 2], [0, 1])]}, title="Rooms", x_label="updates", y_label="success")
    assert (axes.get_title(loc="left"), axes.get_xlabel(), axes.get_ylabel()) == ("Rooms", "updates", "success")


@pytest.mark.parametrize("curves", [{}, {"a": []}, {"a": [([], [])]}])
def test_nothing_to_draw_is_refused(curves):
    with pytest.raises(DataError):
        draw(curves)
