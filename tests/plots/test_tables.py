import pytest

from lookact.errors import DataError
from lookact.plots.tables import read_columns, read_curves, read_eval_csv, read_metrics


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
