import json
import sys
import time
from unittest.mock import MagicMock

import numpy as np
import pytest
import torch

from lookact.algorithms.judge_training import QUERY_COLUMNS
from lookact.errors import ConfigError, DataError
from lookact.training.trackers import (
    FanOut,
    JsonlTracker,
    Table,
    TensorBoardTracker,
    WandbTracker,
    cut_after,
    finite_or_none,
)


def test_numbers_that_json_cannot_hold_become_null():
    assert [finite_or_none(value) for value in (3, 0.5, float("nan"), float("inf"))] == [3, 0.5, None, None]


def test_each_call_is_one_line_readable_at_once(tmp_path):
    tracker = JsonlTracker(tmp_path)
    tracker.log({"loss/total": torch.tensor(0.5), "rollout/episodes": 3}, 1)
    tracker.log({"loss/total": float("nan"), "optim/grad_norm": float("inf")}, 2)
    lines = (tmp_path / "metrics.jsonl").read_text()
    assert lines == (
        '{"step": 1, "loss/total": 0.5, "rollout/episodes": 3}\n'
        '{"step": 2, "loss/total": null, "optim/grad_norm": null}\n'
    )
    tracker.close()


def test_pictures_and_texts_become_files(tmp_path):
    tracker = JsonlTracker(tmp_path)
    tracker.image("eval/map", np.zeros((2, 3, 3), np.uint8), 4)
    tracker.text("eval/reply", "Ünïcode", 4)
    tracker.histogram("x", np.ones(3), 4)
    tracker.close()
    assert sorted(path.name for path in (tmp_path / "samples").iterdir()) == ["eval_map_4.png", "eval_reply_4.txt"]
    assert (tmp_path / "metrics.jsonl").read_text() == ""


def test_lines_past_the_step_and_a_torn_one_are_cut(tmp_path):
    path = tmp_path / "metrics.jsonl"
    lines = [json.dumps({"step": step, "loss/total": step / 2}) + "\n" for step in (0, 1, 1, 2, 3)]
    path.write_text("".join(lines) + '{"step": 1, "loss')
    cut_after(path, 2)
    assert path.read_text() == "".join(lines[:4])
    cut_after(path, 1)
    assert path.read_text() == "".join(lines[:3])
    cut_after(path, None)
    assert path.read_text() == ""


def test_a_damaged_line_in_the_middle_is_named(tmp_path):
    path = tmp_path / "metrics.jsonl"
    path.write_text('{"step": 1}\n{"ste\n{"step": 3}\n')
    with pytest.raises(DataError, match=r"metrics\.jsonl:2 is not a line of metrics"):
        cut_after(path, 3)


class Recorder:
    def __init__(self) -> None:
        self.calls = []

    def __getattr__(self, name):
        return lambda *args: self.calls.append((name, *args))


def test_fan_out_tells_each_tracker_everything():
    first, second = Recorder(), Recorder()
    tracker = FanOut([first, second])
    tracker.log({"a": 1.0}, 1)
    tracker.image("i", "pixels", 2)
    tracker.text("t", "words", 3)
    tracker.histogram("h", "values", 4)
    tracker.close()
    assert first.calls == second.calls
    assert first.calls == [
        ("log", {"a": 1.0}, 1),
        ("image", "i", "pixels", 2),
        ("text", "t", "words", 3),
        ("histogram", "h", "values", 4),
        ("close",),
    ]


def use_everything(tracker, step):
    tracker.log({"loss/total": 1.0}, step)
    tracker.image("eval/map", np.zeros((4, 4, 3), np.uint8), step)
    tracker.text("eval/reply", "a < b", step)
    tracker.histogram("policy/ratio", np.arange(5.0), step)
    tracker.close()


@pytest.mark.slow
def test_tensorboard_hides_what_a_resumed_run_does_again(tmp_path):
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

    before = TensorBoardTracker(tmp_path, done=0)
    for step in (1, 2, 3):
        before.log({"loss/total": float(step)}, step)
    before.close()
    # files are read by the second in their names; only a test resumes within one
    time.sleep(1.1)
    use_everything(TensorBoardTracker(tmp_path, done=1), 2)
    events = EventAccumulator(str(tmp_path / "tensorboard"))
    events.Reload()
    assert [(event.step, event.value) for event in events.Scalars("loss/total")] == [(1, 1.0), (2, 1.0)]
    assert events.Tags()["images"] == ["eval/map"]
    assert events.Tags()["histograms"] == ["policy/ratio"]


@pytest.mark.slow
def test_wandb_offline_writes_to_the_folder_under_one_id(tmp_path, monkeypatch):
    pytest.importorskip("wandb", reason="needs lookact[wandb]")
    monkeypatch.setenv("WANDB_SILENT", "true")
    for step in (1, 2):
        use_everything(WandbTracker(tmp_path, {"seed": 1}, mode="offline"), step)
    run_id = (tmp_path / "wandb_id").read_text()
    assert len(list((tmp_path / "wandb").glob(f"offline-run-*-{run_id}"))) >= 1


@pytest.mark.parametrize(("named", "project"), [(None, "lookact"), ("robots", "robots")])
def test_wandbs_own_variable_names_the_project(tmp_path, monkeypatch, named, project):
    asked = {}
    monkeypatch.delenv("WANDB_PROJECT", raising=False)
    if named is not None:
        monkeypatch.setenv("WANDB_PROJECT", named)
    wandb = MagicMock()
    wandb.init = lambda **settings: asked.update(settings) or MagicMock()
    monkeypatch.setitem(sys.modules, "wandb", wandb)
    WandbTracker(tmp_path, {}, mode="offline")
    assert asked["project"] == project


def test_missing_wandb_names_the_extra(tmp_path, monkeypatch):
    monkeypatch.setitem(sys.modules, "wandb", None)
    with pytest.raises(ConfigError, match=r"pip install 'lookact\[wandb\]'"):
        WandbTracker(tmp_path, {}, mode="offline")


def test_rows_are_on_disk_under_the_columns_as_they_come(tmp_path):
    table = Table(tmp_path / "deep" / "vlm_query_log.csv", QUERY_COLUMNS)
    table.extend([(0.5, -1.25, 1, "now", 3)])
    table.extend([(0, 0, -1, "later", 4), (1, 2, 0, "later", 4)])
    lines = table.path.read_text().splitlines()
    assert lines[0] == "ground_truth_score_1,ground_truth_score_2,vlm_predicted_label,timestamp,train_iter"
    assert lines[1:] == ["0.5,-1.25,1,now,3", "0,0,-1,later,4", "1,2,0,later,4"]
    assert len(table) == 3


def test_a_resumed_table_forgets_rows_that_will_be_written_again(tmp_path):
    table = Table(tmp_path / "eval.csv", ("step", "success_rate"))
    table.extend([(10, 0.5)])
    kept = table.state_dict()
    table.extend([(20, 0.75)])
    again = Table(tmp_path / "eval.csv", ("step", "success_rate"))
    again.load_state_dict(kept)
    again.extend([(20, 0.8)])
    assert again.path.read_text().split() == ["step,success_rate", "10,0.5", "20,0.8"]


def test_a_new_run_starts_with_an_empty_table_and_a_header(tmp_path):
    path = tmp_path / "eval.csv"
    path.write_text("left by a run that was thrown away\n")
    table = Table(path, ("step", "success_rate"))
    table.begin()
    assert path.read_text().split() == ["step,success_rate"]
    assert len(table) == 0
