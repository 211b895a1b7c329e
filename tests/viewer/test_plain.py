from pathlib import Path

import pytest

from lookact.viewer import plain as reading
from lookact.viewer.plain import plain, read_json, read_tail, read_yaml


def test_numbers_that_json_cannot_hold_become_none_and_huge_ones_text():
    held = {"a": float("nan"), 1: [float("inf"), 2.5, True, None], "b": (2**53, 2**53 + 1), "c": Path("x")}
    told = {"a": None, "1": [None, 2.5, True, None], "b": [2**53, "9007199254740993"], "c": "x"}
    assert plain(held) == told


def test_missing_and_torn_files_are_none(tmp_path):
    assert read_json(tmp_path / "none") is None
    assert read_yaml(tmp_path / "none") is None
    (tmp_path / "torn").write_text('{"a": [1, ')
    assert read_json(tmp_path / "torn") is None
    assert read_yaml(tmp_path / "torn") is None
    (tmp_path / "bytes").write_bytes(b"\xff\xfe\x00")
    assert read_json(tmp_path / "bytes") is None
    assert read_yaml(tmp_path / "bytes") is None
    (tmp_path / "nan").write_text('{"a": NaN}')
    assert read_json(tmp_path / "nan") == {"a": None}


def test_yaml_is_read_anew_when_it_has_changed_and_only_then(tmp_path, monkeypatch):
    path = tmp_path / "config.yaml"
    path.write_text("a: {b: 1}")
    held = read_yaml(path)
    held["a"]["b"] = "spoiled by whoever got it"
    monkeypatch.setattr(reading.yaml, "load", lambda *_: pytest.fail("it was parsed again"))
    assert read_yaml(path) == {"a": {"b": 1}}
    monkeypatch.undo()
    path.write_text("a: {b: 22}")
    assert read_yaml(path) == {"a": {"b": 22}}


def test_a_tail_begins_with_a_whole_line(tmp_path):
    (tmp_path / "log").write_text("first\nsecond\nthird\n")
    assert read_tail(tmp_path / "log", 100) == "first\nsecond\nthird\n"
    assert read_tail(tmp_path / "log", 10) == "third\n"
    assert read_tail(tmp_path / "none", 10) == ""
