import json
import logging
import os
import shutil

import pytest
import torch
import yaml
from torch import nn

import lookact
from lookact.errors import ConfigError, DataError, TrainingStopped
from lookact.training.run import artifact_folder, begin_artifacts, open_run, save_artifacts
from lookact.training.run_files import read_origin


def go(folder, total, *, model=None, **options):
    """Log and save each step up to `total`; the model's weight counts the steps."""
    model = model or nn.Linear(1, 1, bias=False)
    nn.init.zeros_(model.weight)
    parts = {"weights": {"model": model}, "state": {}}
    with open_run(folder, {"seed": 1, "sizes": (3, 4)}, tensorboard=False, **options) as run:
        run.restore(**parts)
        for step in run.steps(total):
            with torch.no_grad():
                model.weight += 1
            run.log({"loss/total": model.weight.item()}, step, show="loss/total")
            run.save(step, **parts, metrics={"score": step}, best=("score", "max"))
    return run


def steps(folder):
    return [json.loads(line)["step"] for line in (folder / "metrics.jsonl").read_text().splitlines()]


def test_a_run_leaves_its_papers(tmp_path):
    folder = tmp_path / "runs/toy/one"
    go(folder, 4)
    assert yaml.safe_load((folder / "config.yaml").read_text()) == {"seed": 1, "sizes": [3, 4]}
    versions = json.loads((folder / "versions.json").read_text())
    # the build, as +cpu or +cu130, stands in one and may lack in the other
    assert torch.__version__.startswith(versions["torch"])
    assert {"python", "platform", "lookact", "commit", "transformers"} <= set(versions)
    assert "saved checkpoint-4" in (folder / "training.log").read_text()
    assert sorted(path.name for path in folder.glob("checkpoint-*")) == [f"checkpoint-{step}" for step in (2, 3, 4)]
    assert not logging.getLogger("lookact").handlers


def test_a_folder_that_holds_a_run_is_refused(tmp_path):
    go(tmp_path, 1)
    with pytest.raises(ConfigError, match="holds a run: go on with --auto-resume or --resume, or give another --name"):
        go(tmp_path, 2)
    assert steps(tmp_path) == [1]


def test_a_run_that_failed_before_its_first_step_may_start_again(tmp_path):
    with pytest.raises(ZeroDivisionError), open_run(tmp_path, {}, tensorboard=False):
        raise ZeroDivisionError("at once")
    assert "ZeroDivisionError: at once" in (tmp_path / "training.log").read_text()
    go(tmp_path, 1)


def test_auto_resume_starts_goes_on_and_ends(tmp_path):
    assert go(tmp_path, 2, auto_resume=True).done == 0
    model = nn.Linear(1, 1, bias=False)
    assert go(tmp_path, 5, auto_resume=True, model=model).done == 2
    assert model.weight.item() == 5.0
    assert go(tmp_path, 5, auto_resume=True).done == 5
    assert steps(tmp_path) == [1, 2, 3, 4, 5]


def test_a_torn_checkpoint_is_passed_over_and_done_again(tmp_path):
    go(tmp_path, 3)
    with (tmp_path / "checkpoint-3/training_state.pt").open("r+b") as file:
        file.truncate(10)
    assert go(tmp_path, 4, auto_resume=True).done == 2
    assert steps(tmp_path) == [1, 2, 3, 4]


def test_resume_from_an_older_checkpoint_sets_the_newer_aside(tmp_path):
    go(tmp_path, 3)
    assert go(tmp_path, 2, resume=tmp_path / "checkpoint-1").done == 1
    assert steps(tmp_path) == [1, 2]
    assert sorted(path.name for path in (tmp_path / "abandoned").iterdir()) == ["best", "checkpoint-2", "checkpoint-3"]
    assert sorted(path.name for path in tmp_path.glob("checkpoint-*")) == ["checkpoint-1", "checkpoint-2"]


def test_resume_into_another_folder_brings_the_metrics_along(tmp_path):
    go(tmp_path / "old", 3)
    model = nn.Linear(1, 1, bias=False)
    assert go(tmp_path / "new", 4, resume=tmp_path / "old/checkpoint-2", model=model).done == 2
    assert model.weight.item() == 4.0
    assert steps(tmp_path / "new") == [1, 2, 3, 4]
    assert steps(tmp_path / "old") == [1, 2, 3]
    assert go(tmp_path / "newer", 3, resume=tmp_path / "old").done == 3
    with pytest.raises(ConfigError, match="holds another run"):
        go(tmp_path / "new", 4, resume=tmp_path / "old")


def test_a_bad_resume_path_changes_nothing(tmp_path):
    go(tmp_path / "run", 2)
    with pytest.raises(DataError, match="nothing to resume"):
        go(tmp_path / "run", 3, resume=tmp_path / "nowhere")
    (tmp_path / "run/checkpoint-1/model.safetensors").write_bytes(b"")
    with pytest.raises(DataError, match="torn"):
        go(tmp_path / "run", 3, resume=tmp_path / "run/checkpoint-1")
    assert steps(tmp_path / "run") == [1, 2]
    assert not (tmp_path / "run/abandoned").exists()


def test_what_a_killed_run_left_is_removed(tmp_path):
    go(tmp_path, 1)
    (tmp_path / ".tmp-checkpoint-2").mkdir()
    (tmp_path / ".tmp-checkpoint-2/model.safetensors").write_bytes(b"half")
    go(tmp_path, 1, auto_resume=True)
    assert not list(tmp_path.glob(".tmp-*"))


def test_two_processes_do_not_train_in_one_folder(tmp_path):
    with open_run(tmp_path, {}, tensorboard=False):
        child = os.fork()
        if child == 0:
            try:
                open_run(tmp_path, {}, tensorboard=False)
            except ConfigError as error:
                os._exit(7 if "another process is training" in str(error) else 1)
            finally:
                os._exit(0)
        assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 7


def test_each_changed_setting_is_told_and_kept(tmp_path, caplog):
    def opened(**learn):
        with open_run(tmp_path, {"seed": 1, "learn": learn}, auto_resume=True, tensorboard=False) as run:
            run.save(run.done + 1, weights={}, state={}, metrics={})

    opened(lr=1e-4, clip=0.2)
    opened(lr=1e-3, clip=0.2)
    assert "changed since this run began: learn.lr: 0.0001 → 0.001" in caplog.text
    opened(lr=1e-3, clip=0.2)
    opened(lr=1e-3, units="reply")
    kept = [json.loads(line) for line in (tmp_path / "config_history.jsonl").read_text().splitlines()]
    assert [(line["step"], line["changed"]) for line in kept] == [
        (1, {"learn.lr": [1e-4, 1e-3]}),
        (3, {"learn.clip": [0.2, "(unset)"], "learn.units": ["(unset)", "reply"]}),
    ]
    assert yaml.safe_load((tmp_path / "config.yaml").read_text())["learn"] == {"lr": 1e-3, "units": "reply"}


def test_a_run_and_its_checkpoints_say_whose_they_are(tmp_path):
    origin = {"recipe": "nav-rloo", "preset": "debug"}
    with open_run(tmp_path / "run", {"seed": 1}, origin=origin, tensorboard=False) as run:
        run.save(1, weights={}, state={}, metrics={"m": 1.0}, best=("m", "max"))
    known = {**origin, "lookact": lookact.__version__}
    assert read_origin(tmp_path / "run") == known
    # a checkpoint that is carried elsewhere takes it along
    shutil.copytree(tmp_path / "run/best", tmp_path / "elsewhere")
    assert read_origin(tmp_path / "elsewhere") == known
    assert read_origin(tmp_path) == {}


def open_at(folder, **how):
    return open_run(folder, {"seed": 0}, tensorboard=False, **how)


def save(run, step, module, score):
    save_artifacts(
        run, step, weights={"model": module}, state={}, metrics={"score": score}, keep=2, best=("score", "max")
    )


def test_without_the_variable_checkpoints_stay_in_the_run(tmp_path, monkeypatch):
    monkeypatch.delenv("ARTIFACT_ROOT", raising=False)
    with open_at(tmp_path / "pref-sac" / "a") as run:
        assert artifact_folder(run) is None
        for step in (1, 2, 3):
            save(run, step, torch.nn.Linear(2, 2), score=-step)
    assert sorted(path.name for path in run.folder.glob("checkpoint-*")) == ["checkpoint-2", "checkpoint-3"]
    assert (run.folder / "best").is_dir()


def test_heavy_output_goes_to_the_scratch_disk_and_the_newest_checkpoint_comes_back(tmp_path, monkeypatch):
    monkeypatch.setenv("ARTIFACT_ROOT", str(tmp_path / "scratch"))
    module = torch.nn.Linear(2, 2)
    with open_at(tmp_path / "pref-sac" / "a") as run:
        begin_artifacts(run)
        for step in (1, 2, 3):
            save(run, step, module, score=-step)
    kept = tmp_path / "scratch" / "pref-sac" / "a"
    names = [".lock", "best", "checkpoint-2", "checkpoint-3", "owner.txt"]
    assert sorted(path.name for path in kept.iterdir()) == names
    assert [path.name for path in run.folder.glob("checkpoint-*")] == ["checkpoint-3"]
    with open_at(run.folder, auto_resume=True) as again:
        assert again.done == 3
        other = torch.nn.Linear(2, 2)
        again.restore(weights={"model": other}, state={})
        assert torch.equal(other.weight, module.weight)


def test_a_run_resumed_from_an_earlier_step_sets_the_later_ones_aside(tmp_path, monkeypatch):
    monkeypatch.setenv("ARTIFACT_ROOT", str(tmp_path / "scratch"))
    with open_at(tmp_path / "pref-sac" / "a") as run:
        begin_artifacts(run)
        for step in (1, 2):
            save(run, step, torch.nn.Linear(2, 2), score=step)
    kept = tmp_path / "scratch" / "pref-sac" / "a"
    with open_at(tmp_path / "pref-sac" / "b", resume=kept / "checkpoint-1") as again:
        begin_artifacts(again)
    with open_at(tmp_path / "other" / "a", resume=kept / "checkpoint-1"):
        pass
    assert (kept / "checkpoint-2").is_dir()
    with open_at(tmp_path / "fresh" / "pref-sac" / "a", resume=kept / "checkpoint-1") as earlier:
        begin_artifacts(earlier)
    assert not (kept / "checkpoint-2").exists()
    assert (kept / "abandoned" / "checkpoint-2").is_dir()


def test_two_runs_of_one_name_do_not_share_a_folder_on_the_scratch_disk(tmp_path, monkeypatch):
    monkeypatch.setenv("ARTIFACT_ROOT", str(tmp_path / "scratch"))
    with open_at(tmp_path / "home-a/pref-sac/a") as run:
        begin_artifacts(run)
        save(run, 1, torch.nn.Linear(2, 2), score=1)
    kept = tmp_path / "scratch/pref-sac/a"
    told = r"holds the checkpoints of .*home-a.*give another --name"
    with open_at(tmp_path / "home-b/pref-sac/a") as other, pytest.raises(ConfigError, match=told):
        begin_artifacts(other)
    assert (kept / "checkpoint-1").is_dir()
    with open_at(tmp_path / "home-a/pref-sac/a", auto_resume=True) as again:
        begin_artifacts(again)


def test_a_disk_that_fills_while_a_log_is_written_is_one_line(tmp_path, capsys):
    log, metrics = (open("/dev/full", "w") for _ in range(2))  # noqa: PTH123, SIM115
    with open_run(tmp_path / "a", {}, tensorboard=False) as run:
        for handler in logging.getLogger("lookact").handlers:
            handler.setStream(log)
        logging.getLogger("lookact").warning("this is not kept")
        run.tracker.trackers[0].file = metrics
        with pytest.raises(TrainingStopped, match=r"no space left for .*go on with --auto-resume"):
            run.log({"loss/total": 1.0}, 1)
    assert "Logging error" not in capsys.readouterr().err
