import numpy as np
import pytest

from lookact.errors import DataError
from lookact.plots.learning_curve import (
    draw_learning_curve,
    moving_average,
    read_columns,
    read_curves,
    read_eval_csv,
    read_metrics,
    spread,
    summarise,
)
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


def write(path, text):
    path.write_text(text, encoding="utf-8")
    return path


def test_metrics_skip_lines_without_the_key_and_sort_by_step(tmp_path):
    text = '{"step": 3, "a/b": 0.5}\n{"step": 2, "loss": 1}\n{"step": 1, "a/b": 0}\n{"step": 4, "a/b": null}\n'
    write(tmp_path / "metrics.jsonl", text)
    for path in (tmp_path, tmp_path / "metrics.jsonl"):
        steps, values = read_metrics(path, "a/b")
        assert steps.tolist() == [1.0, 3.0]
        assert values.tolist() == [0.0, 0.5]


def test_a_step_written_again_counts_once_as_it_was_written_last(tmp_path):
    curves = read_curves(write(tmp_path / "m.jsonl", '{"step": 1, "a": 1}\n{"step": 2, "a": 5}\n{"step": 2, "a": 7}\n'))
    assert [part.tolist() for part in curves["a"]] == [[1.0, 2.0], [1.0, 7.0]]


def test_a_torn_last_line_is_a_run_still_at_work(tmp_path):
    steps, _ = read_metrics(write(tmp_path / "m.jsonl", '{"step": 1, "a": 1}\n{"step": 2, "a'), "a")
    assert steps.tolist() == [1.0]


@pytest.mark.parametrize(
    ("text", "line"),
    [
        ('{"step": 1, "eval/success_rate": 1}\n', r"holds no success_rate: did you mean eval/success_rate\?"),
        ('{"step": 1, "zz": 1, "yy": 2}\n', "holds no success_rate: it has yy, zz"),
        ('{"step": 1}\n{torn\n{"step": 2}\n', "m.jsonl:2 is not JSON"),
        ("[1]\n", "m.jsonl:1 is not a JSON object"),
        ('{"success_rate": 1}\n', "m.jsonl:1 needs numbers for step and success_rate"),
        ('{"step": 1, "success_rate": "high"}\n', "m.jsonl:1 needs numbers for step and success_rate"),
        ("", "holds no numbers"),
    ],
)
def test_bad_metrics_are_one_clear_line(tmp_path, text, line):
    with pytest.raises(DataError, match=line):
        read_metrics(write(tmp_path / "m.jsonl", text), "success_rate")


def test_a_missing_file_is_named(tmp_path):
    with pytest.raises(DataError, match=r"metrics\.jsonl does not exist"):
        read_metrics(tmp_path, "a")
    with pytest.raises(DataError, match=r"eval\.csv does not exist"):
        read_eval_csv(tmp_path / "eval.csv")


def test_a_table_is_read_by_name_whatever_spaces_marks_and_other_columns(tmp_path):
    path = write(tmp_path / "eval.csv", "\ufeffstep, note, success_rate\n20, b, 0.5\n10, a, 0.25\n")
    steps, values = read_eval_csv(path)
    assert steps.tolist() == [10.0, 20.0]
    assert values.tolist() == [0.25, 0.5]


@pytest.mark.parametrize(
    ("text", "line"),
    [
        ("step,reward\n1,2\n", "has no column success_rate: its columns are step, reward"),
        ("step,success_rate\n", "holds no rows"),
        ("", "is empty"),
        ("step,success_rate\n1,0.5\n2,much\n", "eval.csv:3 has 'much' under success_rate"),
        ("step,success_rate\n1\n", "eval.csv:2 has None under success_rate"),
        ("step,success_rate\n1,nan\n", "eval.csv:2 has 'nan' under success_rate"),
    ],
)
def test_bad_tables_are_one_clear_line(tmp_path, text, line):
    with pytest.raises(DataError, match=line):
        read_eval_csv(write(tmp_path / "eval.csv", text))


def test_a_file_that_is_no_text_is_named(tmp_path):
    (tmp_path / "eval.csv").write_bytes(b"\xff\xfe\x00\x81")
    with pytest.raises(DataError, match="cannot be read as text"):
        read_columns(tmp_path / "eval.csv", ["step"])
