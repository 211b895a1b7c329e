import errno
import json
import os
import pickle
import subprocess
from pathlib import Path

import numpy as np
import pytest
import torch
from torch import nn

from lookact.errors import ConfigError, DataError
from lookact.training import checkpoint as module
from lookact.training.checkpoint import (
    abandon_newer,
    latest_checkpoint,
    load_checkpoint,
    save_checkpoint,
    write_manifest,
)


def save(folder: Path, step: int, *, score: float = 0.0, fill: float | None = None, **options) -> Path:
    """A checkpoint of a small model whose weights are all `fill` (the step by default)."""
    model, optimizer = make(float(step) if fill is None else fill)
    return save_checkpoint(
        folder,
        step,
        weights={"model": model, "value_head": nn.Linear(2, 1)},
        state={"optimizer": optimizer, "seen": step * 10},
        metrics={"eval/score": score},
        config={"seed": 1},
        **options,
    )


def make(fill: float) -> tuple[nn.Module, torch.optim.Optimizer]:
    model = nn.Linear(3, 2)
    optimizer = torch.optim.AdamW(model.parameters(), lr=0.1)
    model(torch.ones(1, 3)).sum().backward()
    optimizer.step()
    for parameter in model.parameters():
        nn.init.constant_(parameter, fill)
    return model, optimizer


def names(folder: Path) -> list[str]:
    return sorted(path.name for path in folder.iterdir())


def test_what_was_saved_comes_back(tmp_path):
    save(tmp_path, 5, score=0.5)
    model, optimizer = make(0.0)
    optimizer.param_groups[0]["lr"] = 9.0
    found = load_checkpoint(tmp_path / "checkpoint-5", weights={"model": model}, state={"optimizer": optimizer})
    assert model.weight.tolist() == [[5.0] * 3] * 2
    assert optimizer.param_groups[0]["lr"] == 0.1
    assert (found.step, found.state["seen"], found.metrics, found.config) == (5, 50, {"eval/score": 0.5}, {"seed": 1})
    assert (found.weights("value_head") / "model.safetensors").exists()


def test_a_function_writes_its_own_weights(tmp_path):
    def write(folder: Path) -> None:
        (folder / "words.txt").write_text("hello")

    path = save_checkpoint(tmp_path, 1, weights={"notes": write}, state={}, metrics={}, config={})
    assert (load_checkpoint(path, weights={"notes": write}).weights("notes") / "words.txt").read_text() == "hello"


def test_tied_weights_are_saved_and_stay_tied(tmp_path):
    class Tied(nn.Module):
        def __init__(self, fill: float) -> None:
            super().__init__()
            self.inside = nn.Linear(2, 2, bias=False)
            self.outside = nn.Linear(2, 2, bias=False)
            self.outside.weight = self.inside.weight
            nn.init.constant_(self.inside.weight, fill)

    path = save_checkpoint(tmp_path, 1, weights={"model": Tied(3.0)}, state={}, metrics={}, config={})
    other = Tied(0.0)
    load_checkpoint(path, weights={"model": other})
    assert other.outside.weight.tolist() == [[3.0, 3.0], [3.0, 3.0]]
    assert other.outside.weight is other.inside.weight


def test_every_truncated_or_missing_file_makes_it_torn(tmp_path):
    save(tmp_path, 1)
    good = tmp_path / "checkpoint-1"
    files = [path.relative_to(good) for path in good.rglob("*") if path.is_file()]
    assert len(files) == 7
    for file in files:
        for damage in ("truncate", "remove", "flip"):
            broken = save(tmp_path, 2)
            target = broken / file
            content = target.read_bytes()
            if damage == "remove":
                target.unlink()
            else:
                target.write_bytes(content[:-1] if damage == "truncate" else bytes([content[0] ^ 1]) + content[1:])
            if file.name == "manifest.json" and damage == "truncate":
                target.write_bytes(content[: len(content) // 2])
            with pytest.raises(DataError, match=r"torn|not a LookAct checkpoint"):
                load_checkpoint(broken)
            assert latest_checkpoint(tmp_path) == good, (file, damage)


def test_foreign_folders_and_other_versions_are_refused(tmp_path):
    with pytest.raises(DataError, match=r"no manifest\.json"):
        load_checkpoint(tmp_path)
    path = save(tmp_path, 1)
    manifest = json.loads((path / "manifest.json").read_text())
    (path / "manifest.json").write_text(json.dumps(manifest | {"format": "someone-else"}))
    with pytest.raises(DataError, match="of another kind"):
        load_checkpoint(path)
    (path / "manifest.json").write_text(json.dumps(manifest | {"version": 99}))
    with pytest.raises(DataError, match=r"version 99.*upgrade"):
        load_checkpoint(path)
    outside = {"../../secret": {"size": 0, "sha256": ""}}
    (path / "manifest.json").write_text(json.dumps(manifest | {"files": outside}))
    with pytest.raises(DataError, match="torn"):
        load_checkpoint(path)


class Trap:
    """Unpickling it would leave a mark."""

    def __init__(self, mark: Path) -> None:
        self.mark = mark

    def __reduce__(self):
        return os.system, (f"touch {self.mark}",)


@pytest.mark.filterwarnings("ignore:Detected pickle protocol")
@pytest.mark.parametrize("write", [torch.save, lambda trap, path: path.write_bytes(pickle.dumps(trap))])
def test_a_malicious_pickle_is_refused_and_never_run(tmp_path, write):
    path = save(tmp_path, 1)
    write(Trap(tmp_path / "mark"), path / "training_state.pt")
    write_manifest(path, 1)
    with pytest.raises(DataError, match=r"training_state\.pt is refused"):
        load_checkpoint(path)
    assert not (tmp_path / "mark").exists()


def test_state_that_could_not_be_read_back_is_refused_at_save(tmp_path):
    with pytest.raises(DataError, match=r"state replay\.frames\[1\] is a ndarray"):
        save_checkpoint(tmp_path, 1, weights={}, state={"replay": {"frames": [0, np.zeros(2)]}}, metrics={}, config={})
    assert names(tmp_path) == []


def test_numpy_numbers_become_plain_ones(tmp_path):
    path = save_checkpoint(
        tmp_path, 1, weights={}, state={"mean": np.float64(0.5), "pair": (np.int64(3), "x")}, metrics={}, config={}
    )
    assert load_checkpoint(path).state == {"mean": 0.5, "pair": (3, "x")}


class Narrow:
    """A Stateful that remembers whether it was ever touched."""

    touched = False

    def state_dict(self):
        return {"a": 1}

    def load_state_dict(self, state):
        self.touched = True


def test_nothing_is_touched_unless_everything_fits(tmp_path):
    model, optimizer = make(1.0)
    parts = {"optimizer": optimizer, "narrow": Narrow()}
    path = save_checkpoint(tmp_path, 1, weights={"model": model}, state=parts, metrics={}, config={})
    small, good = nn.Linear(2, 2), make(0.0)
    wrong = [
        ({"model": small}, {"optimizer": good[1], "narrow": Narrow()}, "weight has shape"),
        ({"model": nn.Sequential(small)}, {"optimizer": good[1], "narrow": Narrow()}, "lacks 0.bias"),
        ({"missing": good[0]}, {"optimizer": good[1], "narrow": Narrow()}, "holds no model.safetensors"),
        ({"model": good[0]}, {"optimizer": torch.optim.AdamW(small.parameters()), "narrow": Narrow()}, "exp_avg"),
        ({"model": good[0]}, {"optimizer": torch.optim.AdamW([small.weight]), "narrow": Narrow()}, "groups of"),
        ({"model": good[0]}, {"optimizer": good[1]}, "narrow would be forgotten"),
        ({"model": good[0]}, {"optimizer": good[1], "narrow": Narrow(), "more": Narrow()}, "more would be forgotten"),
    ]
    for weights, state, message in wrong:
        with pytest.raises(DataError, match=message):
            load_checkpoint(path, weights=weights, state=state)
        assert good[0].weight.abs().sum() == 0
        assert not any(getattr(item, "touched", False) for item in state.values())


def test_rotation_keeps_the_newest_by_number(tmp_path):
    for step in (8, 9, 10, 11):
        save(tmp_path, step, keep=2)
    assert names(tmp_path) == ["checkpoint-10", "checkpoint-11"]
    with pytest.raises(ConfigError, match="keep=0"):
        save(tmp_path, 12, keep=0)


@pytest.mark.parametrize(("direction", "winner"), [("max", 3), ("min", 2)])
def test_best_is_kept_by_its_metric_and_outlives_rotation(tmp_path, direction, winner):
    for step, score in ((1, 0.5), (2, 0.1), (3, 0.9), (4, 0.9), (5, float("nan")), (6, 0.3)):
        save(tmp_path, step, score=score, keep=1, best=("eval/score", direction))
    assert names(tmp_path) == ["best", "checkpoint-6"]
    assert load_checkpoint(tmp_path / "best").step == winner


def test_best_must_name_a_metric(tmp_path):
    with pytest.raises(ConfigError, match=r"best=eval/scroe is none of the metrics \['eval/score'\]"):
        save(tmp_path, 1, best=("eval/scroe", "max"))


def test_saving_a_step_again_replaces_it(tmp_path):
    save(tmp_path, 1, fill=1.0)
    path = save(tmp_path, 1, fill=2.0)
    model, _ = make(0.0)
    load_checkpoint(path, weights={"model": model})
    assert model.bias.tolist() == [2.0, 2.0]
    assert names(tmp_path) == ["checkpoint-1"]


def test_newer_checkpoints_are_set_aside_not_lost(tmp_path):
    for step in (1, 2, 3):
        save(tmp_path, step, score=step, best=("eval/score", "max"))
    abandon_newer(tmp_path, 1)
    assert names(tmp_path) == ["abandoned", "checkpoint-1"]
    assert names(tmp_path / "abandoned") == ["best", "checkpoint-2", "checkpoint-3"]


@pytest.mark.parametrize("failing", ["fsync", "link"])
def test_a_write_that_finds_no_space_leaves_the_last_good_one(tmp_path, monkeypatch, failing):
    save(tmp_path, 1, score=1.0, best=("eval/score", "max"))

    def full(*_, **__):
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr(os, failing, full)
    if failing == "link":
        monkeypatch.setattr(module.shutil, "copy2", full)
    with pytest.raises(DataError, match=r"no space left to write .*checkpoint-2: free some"):
        save(tmp_path, 2, score=2.0, best=("eval/score", "max"))
    monkeypatch.undo()
    assert names(tmp_path) == ["best", "checkpoint-1"]
    assert latest_checkpoint(tmp_path) == tmp_path / "checkpoint-1"
    assert load_checkpoint(tmp_path / "best").step == 1


@pytest.fixture
def tiny_disk(tmp_path):
    """A file system of 1 MB."""
    disk = tmp_path / "disk"
    disk.mkdir()
    try:
        subprocess.run(["mount", "-t", "tmpfs", "-o", "size=1m", "tmpfs", disk], check=True, capture_output=True)
    except (OSError, subprocess.CalledProcessError):
        pytest.skip("needs root: it mounts a tmpfs")
    yield disk
    subprocess.run(["umount", disk], check=True)


@pytest.mark.parametrize("where", ["weights", "state"])
def test_a_truly_full_disk_leaves_the_last_good_one(tiny_disk, where):
    save(tiny_disk, 1)
    big = (
        {"weights": {"model": nn.Linear(1000, 500)}}
        if where == "weights"
        else {"state": {"replay": torch.ones(500_000)}}
    )
    with pytest.raises(DataError, match="no space left"):
        save_checkpoint(tiny_disk, 2, **({"weights": {}, "state": {}} | big), metrics={}, config={})
    assert names(tiny_disk) == ["checkpoint-1"]
    save(tiny_disk, 3)
    assert latest_checkpoint(tiny_disk) == tiny_disk / "checkpoint-3"


def test_another_error_while_writing_is_not_called_a_full_disk(tmp_path):
    def broken(folder: Path) -> None:
        raise RuntimeError("no such layer")

    with pytest.raises(RuntimeError, match="no such layer"):
        save_checkpoint(tmp_path, 1, weights={"model": broken}, state={}, metrics={}, config={})
    assert names(tmp_path) == []
