import json

import numpy as np
import pytest

from lookact.errors import DataError
from lookact.plots.learning_curve import draw_curves, read_curves, smooth


def write(folder, records):
    folder.mkdir()
    (folder / "metrics.jsonl").write_text("".join(json.dumps(record) + "\n" for record in records))
    return folder


def test_read_curves_keeps_the_last_word_on_each_step_and_skips_gaps(tmp_path):
    records = [{"step": 1, "a": 1.0}, {"step": 2, "a": 5.0, "b": None}, {"step": 2, "a": 2.0}, {"step": 3, "b": 7}]
    curves = read_curves(write(tmp_path / "run", records))
    assert [list(part) for part in curves["a"]] == [[1, 2], [1.0, 2.0]]
    assert [list(part) for part in curves["b"]] == [[3], [7.0]]


@pytest.mark.parametrize("content", [None, "{", "3\n", '{"a": 1}\n'])
def test_a_missing_or_torn_file_is_named(tmp_path, content):
    if content is not None:
        (tmp_path / "metrics.jsonl").write_text(content)
    with pytest.raises(DataError, match=r"metrics\.jsonl"):
        read_curves(tmp_path)


def test_smooth_is_the_mean_of_the_last_values():
    assert smooth(np.array([1.0, 3.0, 5.0, 9.0]), 2).tolist() == [1.0, 2.0, 4.0, 7.0]


def test_each_run_is_drawn_in_its_own_colour(tmp_path):
    steps = np.arange(100.0)
    one = draw_curves({"a": {"x": (steps, steps)}}, ["x"])
    two = draw_curves({"a": {"x": (steps, steps)}, "b": {"x": (steps, -steps)}}, ["x"])
    red = (np.abs(two.astype(int) - [0xD1, 0x49, 0x5B]).sum(axis=-1) < 20).sum()
    assert one.dtype == np.uint8
    assert red > 50
    assert (np.abs(one.astype(int) - [0xD1, 0x49, 0x5B]).sum(axis=-1) < 20).sum() == 0


def test_many_metrics_make_rows_of_panels():
    curve = {"x": (np.arange(3.0), np.arange(3.0)), "y": (np.arange(3.0), np.arange(3.0))}
    wide = draw_curves({"a": curve}, ["x", "y"])
    tall = draw_curves({"a": curve}, ["x", "y", "x", "y"])
    assert tall.shape[0] == 2 * wide.shape[0]
