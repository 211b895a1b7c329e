import json

import pytest

from lookact.viewer import metrics
from lookact.viewer.metrics import as_columns, downsample, metric_files, read_metrics, summary


def test_columns_have_holes_where_a_line_lacks_a_number():
    values = [{"step": 1, "a": 0.5, "phase": "teacher"}, {"step": 2, "b": float("nan")}, None, [1], {"a": 1}]
    assert as_columns(values) == ({"step": [1, 2], "a": [0.5, None], "b": [None, None]}, 3)


def test_only_what_was_written_since_is_sent(tmp_path):
    path = tmp_path / "metrics.jsonl"
    path.write_text('{"step": 1, "a": 1}\n')
    first = read_metrics(path)
    assert (first["columns"], first["offset"], first["restart"]) == ({"step": [1], "a": [1]}, 20, True)
    with path.open("a") as file:
        file.write('{"step": 2, "a": 3}\n{"step": 3, "a')
    second = read_metrics(path, offset=first["offset"], version=first["version"])
    assert (second["columns"], second["offset"], second["restart"]) == ({"step": [2], "a": [3]}, 40, False)
    third = read_metrics(path, offset=second["offset"], version=second["version"])
    assert (third["columns"], third["offset"]) == ({"step": []}, 40)


def test_a_file_written_anew_is_read_from_its_start(tmp_path):
    path = tmp_path / "metrics.jsonl"
    path.write_text('{"step": 1}\n{"step": 2}\n')
    first = read_metrics(path)
    # as a resumed run cuts it: another file takes the name
    (tmp_path / "new").write_text('{"step": 1}\n{"step": 2}\n{"step": 3}\n')
    (tmp_path / "new").replace(path)
    again = read_metrics(path, offset=first["offset"], version=first["version"])
    assert (again["restart"], again["columns"]) == (True, {"step": [1, 2, 3]})
    path.write_text('{"step": 1}\n')
    shrunk = read_metrics(path, offset=again["offset"], version=again["version"])
    assert (shrunk["restart"], shrunk["columns"]) == (True, {"step": [1]})


def test_a_missing_file_is_an_empty_answer(tmp_path):
    answer = read_metrics(tmp_path / "metrics.jsonl", offset=99, version="1")
    assert answer["columns"] == {"step": []}
    assert answer["restart"]


def test_a_long_file_comes_in_chunks(tmp_path, monkeypatch):
    monkeypatch.setattr(metrics, "CHUNK", 30)
    path = tmp_path / "metrics.jsonl"
    path.write_text("".join(json.dumps({"step": step}) + "\n" for step in range(1, 6)))
    steps, offset, version, more = [], 0, "", True
    while more:
        answer = read_metrics(path, offset=offset, version=version)
        steps += answer["columns"]["step"]
        offset, version, more = answer["offset"], answer["version"], answer["more"]
    assert steps == [1, 2, 3, 4, 5]


def test_a_line_longer_than_a_chunk_is_not_asked_for_for_ever(tmp_path, monkeypatch):
    monkeypatch.setattr(metrics, "CHUNK", 10)
    (tmp_path / "metrics.jsonl").write_text('{"step": 1, "a": 123456}\n')
    assert not read_metrics(tmp_path / "metrics.jsonl")["more"]


def test_phases_of_a_run_have_numbers_of_their_own(tmp_path):
    for name in ("warm_start/imitation.jsonl", "warm_start/seeing/metrics.jsonl", "metrics.jsonl", "other.jsonl"):
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).touch()
    assert metric_files(tmp_path) == ["metrics.jsonl", "warm_start/imitation.jsonl", "warm_start/seeing/metrics.jsonl"]


@pytest.mark.parametrize(
    ("lines", "told"),
    [
        ([{"step": 4, "eval/success_rate": 0.5, "rollout/return": 1}, {"step": 5, "rollout/return": 2}],
         {"steps": 5, "headline": {"key": "eval/success_rate", "value": 0.5, "spark": [0.5]}}),
        ([{"step": 1, "rollout/return": 1.0, "loss/x": 3}, {"step": 2, "rollout/return": None}],
         {"steps": 2, "headline": {"key": "rollout/return", "value": 1.0, "spark": [1.0]}}),
        ([{"step": 1, "loss/b": 1, "loss/a": 2}],
         {"steps": 1, "headline": {"key": "loss/a", "value": 2, "spark": [2.0]}}),
        ([{"step": 1, "zz": 1}], {"steps": 1, "headline": None}),
        ([], {"steps": 0, "headline": None}),
    ],
)  # fmt: skip
def test_a_run_in_a_line(tmp_path, write_run, lines, told):
    assert summary(write_run(tmp_path / "run", lines)) == told


def test_a_run_without_a_file_of_numbers(tmp_path):
    assert summary(tmp_path) == {"steps": 0, "headline": None}


def test_small_curves_are_means_of_neighbours():
    assert downsample([1.0, 2.0]) == [1.0, 2.0]
    assert downsample([]) == []
    assert downsample([float(number) for number in range(96)]) == [0.5 + 2 * number for number in range(48)]
