import json

import pytest

from lookact.errors import ConfigError, DataError
from lookact.models.vlm.sources import check_source, weight_bytes


@pytest.fixture
def checkpoint(tmp_path):
    folder = tmp_path / "base"
    folder.mkdir()
    (folder / "config.json").write_text(json.dumps({"model_type": "qwen3_vl"}))
    (folder / "model.safetensors").write_bytes(b"12345")
    return folder


@pytest.fixture
def no_cache(tmp_path, monkeypatch):
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_CACHE", str(tmp_path / "hub"))


def test_what_can_be_loaded_passes(checkpoint, tmp_path, no_cache):
    adapter = tmp_path / "adapter"
    adapter.mkdir()
    (adapter / "adapter_config.json").write_text(json.dumps({"base_model_name_or_path": str(checkpoint)}))
    for source in ("tiny", str(checkpoint), str(adapter), "Qwen/Qwen3-VL-8B-Instruct"):
        check_source(source, "qwen3_vl")
    check_source("bert-base-uncased", "bert", bare=True)


@pytest.mark.parametrize("source", ["./nothere", "/no/where", "runs/nav-rloo/x/best", "nothere", "../up"])
def test_a_path_that_is_not_there_is_told_from_a_name_on_the_hub(source):
    with pytest.raises(DataError, match=f"^no checkpoint at {source}: give a folder that exists, or a Hub name like Q"):
        check_source(source, "qwen3_vl")


def test_a_folder_of_another_kind_is_refused(checkpoint, tmp_path):
    with pytest.raises(ConfigError, match="is a qwen3_vl model: choose a bert checkpoint"):
        check_source(str(checkpoint), "bert")
    with pytest.raises(DataError, match=r"is not a checkpoint: it has no config.json"):
        check_source(str(tmp_path), "bert")
    (checkpoint / "config.json").write_text("{")
    with pytest.raises(DataError, match="the checkpoint is torn"):
        check_source(str(checkpoint), "qwen3_vl")


def test_what_was_never_fetched_is_refused_offline(monkeypatch, no_cache):
    monkeypatch.setenv("HF_HUB_OFFLINE", "1")
    with pytest.raises(DataError, match="some/model is not on this machine and HF_HUB_OFFLINE is set"):
        check_source("some/model", "qwen3_vl")


def test_weights_are_counted_where_they_lie(checkpoint, no_cache):
    assert weight_bytes(str(checkpoint)) == 5
    assert weight_bytes("tiny") == 0
    assert weight_bytes("some/model") == 0


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("{", "is no JSON"),
        ("[" * 100_000, "is no JSON"),
        ("[]", "names no base model"),
        ('{"base_model_name_or_path": 7}', "names no base model"),
        ('{"base_model_name_or_path": "ITSELF"}', "an adapter folder too"),
    ],
)
def test_an_adapter_folder_that_leads_nowhere_is_one_line(tmp_path, text, told):
    (tmp_path / "adapter_config.json").write_text(text.replace("ITSELF", str(tmp_path)))
    with pytest.raises(DataError, match=told):
        check_source(str(tmp_path), "qwen3_vl")
