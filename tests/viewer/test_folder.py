from pathlib import Path

import pytest

from lookact.config import safe_yaml as reading
from lookact.errors import DataError
from lookact.viewer.folder import (
    NotFound,
    contains,
    find,
    inside,
    loose_stores,
    open_folder,
    read_json,
    read_tail,
    read_yaml,
    stores_of,
    to_json,
)


def test_runs_are_found_and_their_phases_belong_to_them(tmp_path, write_run, write_episodes):
    write_run(tmp_path / "nav-rloo/a")
    (tmp_path / "nav-rloo/a/warm_start/seeing").mkdir(parents=True)
    (tmp_path / "nav-rloo/a/warm_start/seeing/metrics.jsonl").touch()
    write_run(tmp_path / "vla-ppo/b")
    write_episodes(tmp_path / "nav-rloo/a/episodes")
    found = find(tmp_path)
    assert found.runs == ("nav-rloo/a", "vla-ppo/b")
    assert found.stores == ("nav-rloo/a/episodes",)


def test_a_runs_evaluations_stand_by_what_they_tell(tmp_path, write_run, write_episodes):
    run = write_run(tmp_path / "runs/nav-rloo/a")
    names = ("after-greedy", "after-sampled", "step-001000", "step-000100", "before-greedy", "random")
    for name in reversed(names):
        write_episodes(run / "episodes" / name)
    write_episodes(run / "eval/episodes")
    write_episodes(tmp_path / "runs/nav-rloo/eval/episodes")
    # also from the folder around all runs
    for root, place in ((tmp_path, "runs/nav-rloo/a"), (tmp_path / "runs", "nav-rloo/a"), (run, ".")):
        found = find(root)
        own = stores_of(place, found)
        assert [store.rpartition("/")[2] for store in own] == [*names, "episodes"]
        assert loose_stores(found) == ([] if place == "." else [f"{place[:-1]}eval/episodes"])


def test_a_run_that_has_no_numbers_yet_is_a_run(tmp_path):
    for name in ("config.yaml", "training.log"):
        (tmp_path / name).touch()
    assert find(tmp_path).runs == (".",)


def test_a_checkpoint_hidden_folders_and_other_folders_are_no_runs(tmp_path):
    for place in ("a/checkpoint-3", "a/best", ".tmp-x", "notes"):
        (tmp_path / place).mkdir(parents=True)
        (tmp_path / place / "config.yaml").touch()
    (tmp_path / ".tmp-x/metrics.jsonl").touch()
    (tmp_path / "a/checkpoint-3/metrics.jsonl").touch()
    assert find(tmp_path) == find(tmp_path / "notes")


def test_links_are_not_followed(tmp_path, write_run):
    write_run(tmp_path / "elsewhere/run")
    (tmp_path / "runs").mkdir()
    (tmp_path / "runs/link").symlink_to(tmp_path / "elsewhere/run")
    assert find(tmp_path / "runs").runs == ()


@pytest.mark.parametrize("place", ["../secret", "a/../../secret", "/etc/passwd", "link/inner", "link", "none", "a\0b"])
def test_nothing_outside_is_opened(tmp_path, place):
    (tmp_path / "secret").touch()
    (tmp_path / "out").mkdir()
    (tmp_path / "out/inner").touch()
    (tmp_path / "root/a").mkdir(parents=True)
    (tmp_path / "root/link").symlink_to(tmp_path / "out")
    with pytest.raises(NotFound):
        inside(tmp_path / "root", place)


def test_what_is_inside_is_opened(tmp_path):
    (tmp_path / "a").mkdir()
    assert inside(tmp_path, "a") == tmp_path / "a"
    assert inside(tmp_path, ".") == tmp_path


def test_the_folder_itself_may_be_a_link(tmp_path):
    (tmp_path / "runs").mkdir()
    (tmp_path / "link").symlink_to(tmp_path / "runs")
    assert open_folder(tmp_path / "link") == (tmp_path / "runs").resolve()


def test_a_missing_folder_is_one_line_with_what_to_run(tmp_path):
    with pytest.raises(DataError, match=r"runs is no folder: train first \(lookact train"):
        open_folder(tmp_path / "runs")


def test_one_place_below_another():
    assert contains("a", "a/b")
    assert contains(".", "a")
    assert not contains("a", "a")
    assert not contains("a", "ab/c")


def test_numbers_that_json_cannot_hold_become_none_and_huge_ones_text():
    held = {"a": float("nan"), 1: [float("inf"), 2.5, True, None], "b": (2**53, 2**53 + 1), "c": Path("x")}
    told = {"a": None, "1": [None, 2.5, True, None], "b": [2**53, "9007199254740993"], "c": "x"}
    assert to_json(held) == told


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
