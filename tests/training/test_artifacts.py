import torch

from lookact.training.artifacts import artifact_folder, begin_artifacts, save_artifacts
from lookact.training.run import open_run


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
    assert sorted(path.name for path in kept.iterdir()) == ["best", "checkpoint-1", "checkpoint-2", "checkpoint-3"]
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
