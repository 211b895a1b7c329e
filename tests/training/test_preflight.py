from pathlib import Path

import pytest
import torch

from lookact.errors import ConfigError, DataError
from lookact.training import preflight
from lookact.training.preflight import need_device, need_files, need_package, need_room


def test_a_missing_package_is_told_with_its_extra_and_the_way_around():
    need_package("numpy", "anything")
    with pytest.raises(
        ConfigError, match=r"^engine x needs the package no_such: pip install no_such, or set --engine hf$"
    ):
        need_package("no_such", "engine x", instead="set --engine hf")


def test_a_device_is_one_that_torch_has():
    need_device("model.device", "cpu")
    with pytest.raises(ConfigError, match=r"^model.device = 'gpu': choose cpu, cuda or cuda:N$"):
        need_device("model.device", "gpu")


@pytest.mark.skipif(torch.cuda.is_available(), reason="there is a GPU")
def test_cuda_without_a_gpu_is_told_with_the_remedy():
    with pytest.raises(ConfigError, match=r"^model.device = 'cuda:1': .* set --model.device cpu"):
        need_device("model.device", "cuda:1")


def test_a_checkpoint_has_the_files_of_its_kind(tmp_path):
    (tmp_path / "vla.json").touch()
    need_files(tmp_path, "vla-ppo", ["vla.json"])
    with pytest.raises(DataError, match=r"is no vla-ppo checkpoint: it has no model.safetensors$"):
        need_files(tmp_path, "vla-ppo", ["vla.json", "model.safetensors"])


def test_room_is_asked_of_the_disk_that_will_hold_the_run(tmp_path, monkeypatch):
    asked = []

    def usage(path):
        asked.append(path)
        return type("Usage", (), {"free": 3e9})

    monkeypatch.setattr(preflight.shutil, "disk_usage", usage)
    need_room(tmp_path / "runs/nav-rloo/new", 2e9, remedy="free some")
    assert asked == [tmp_path]
    with pytest.raises(DataError, match=f"^{tmp_path} has 3.0 GB free, this needs about 4.5 GB: free some$"):
        need_room(tmp_path / "runs", 4.5e9, remedy="free some")


def test_any_run_needs_some_room(monkeypatch):
    monkeypatch.setattr(preflight.shutil, "disk_usage", lambda path: type("Usage", (), {"free": 2e6}))
    with pytest.raises(DataError, match="has 2 MB free, this needs about 105 MB"):
        need_room(Path("runs"), 0, remedy="free some")
