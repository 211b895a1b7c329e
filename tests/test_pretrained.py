"""The checkpoint that comes with the package."""

import json

import pytest

from lookact.cli import main
from lookact.cli.watch import PRETRAINED, RECORD


def test_the_packaged_checkpoint_is_small_and_its_record_beats_random_play():
    assert sum(path.stat().st_size for path in PRETRAINED.iterdir()) < 3_000_000
    record = json.loads((PRETRAINED / RECORD).read_text(encoding="utf-8"))
    assert record["greedy"]["episodes"] == record["random"]["episodes"] == 384
    assert record["greedy"]["ci"]["success_rate"][0] > record["random"]["ci"]["success_rate"][1]


@pytest.mark.slow
def test_the_packaged_checkpoint_acts_as_its_record_says(tmp_path, capsys):
    words = ["--checkpoint", str(PRETRAINED), "--greedy", "--episodes", "48", "--json", "--out", str(tmp_path)]
    assert main(["eval", "nav-rloo", *words]) == 0
    report = json.loads(capsys.readouterr().out)
    # 74% of 384: of 48 rooms fewer than half would be four standard deviations away
    assert report["success_rate"] > 0.5
    assert report["valid_action_rate"] > 0.95


@pytest.mark.slow
def test_watching_leaves_episodes_a_sheet_and_a_page(tmp_path, capsys):
    assert main(["demo", "--watch", "--episodes", "2", "--out", str(tmp_path)]) == 0
    (folder,) = tmp_path.glob("nav-rloo/watch-*")
    assert {"episodes", "sheet.png", "episodes.html"} <= {path.name for path in folder.iterdir()}
    shown = capsys.readouterr().out
    assert "room 2 of 2" in shown
    assert "on record: 74% of 384 rooms" in shown
