import json

import pytest

from lookact.algorithms.general_vlm import make_general
from lookact.algorithms.vlm import open_chat
from lookact.algorithms.vlm_settings import Model
from lookact.cli import main
from lookact.errors import DataError
from lookact.models.vlm.general import GENERAL, GeneralSpec, find_general
from lookact.models.vlm.sources import check_source

FEW = GeneralSpec(images=40, image_epochs=1, conversations=40, epochs=1)


def test_where_it_lies_depends_on_every_setting_and_the_cache(monkeypatch, tmp_path):
    monkeypatch.setenv("LOOKACT_CACHE", str(tmp_path))
    assert GeneralSpec().folder.parent == tmp_path
    assert len({spec.folder for spec in (GeneralSpec(), GeneralSpec(seed=1), GeneralSpec(lr=2e-3), FEW)}) == 4
    monkeypatch.delenv("LOOKACT_CACHE")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "xdg"))
    assert GeneralSpec().folder.parent == tmp_path / "xdg" / "lookact"


def test_without_it_one_line_says_how_to_make_it(monkeypatch, tmp_path):
    monkeypatch.setenv("LOOKACT_CACHE", str(tmp_path))
    with pytest.raises(DataError, match="lookact pretrain"):
        check_source(GENERAL, "qwen3_vl")


@pytest.mark.slow
def test_it_is_made_once_the_same_each_time_and_opens_by_its_name(monkeypatch, tmp_path, capsys):
    monkeypatch.setenv("LOOKACT_CACHE", str(tmp_path))
    words = ["pretrain", "--images", "40", "--conversations", "40", "--out", str(tmp_path / "own"), "--json"]
    assert main(words) == 0
    told = json.loads(capsys.readouterr().out)
    assert set(told["accuracy"]) == {"place", "height", "direction", "colour", "shape", "count", "presence"}
    assert main(words) == 0
    assert "there already" in capsys.readouterr().out
    again = GeneralSpec(images=40, conversations=40)
    make_general(again, tmp_path / "again", questions=2)
    weights = [(tmp_path / name / "model.safetensors").read_bytes() for name in ("own", "again")]
    assert weights[0] == weights[1]
    # the default one is what the source names: here a small one stands in for it
    (tmp_path / "again").rename(GeneralSpec().folder)
    check_source(GENERAL, "qwen3_vl")
    chat = open_chat(Model(source=GENERAL), tmp_path / "unused", corpus=list, image_size=0, seed=0)
    assert chat.tokenizer.encode("red square")
    assert find_general() == GeneralSpec().folder
    assert not (tmp_path / "unused").exists()
