"""The examples run, offline, and say what they promise."""

import json
import runpy
from pathlib import Path

import pytest

EXAMPLES = Path(__file__).parent.parent / "examples"


def test_every_example_is_run_by_a_test():
    # the second one in tests/judges
    assert {path.name for path in EXAMPLES.iterdir() if path.is_file()} == {"navigate.py", "gemini_compat.py"}


@pytest.mark.slow
def test_navigate_collects_episodes_and_goes_on_where_it_was(tmp_path, capsys):
    main = runpy.run_path(str(EXAMPLES / "navigate.py"))["main"]
    main(["--out", str(tmp_path), "--episodes", "1"])
    first = capsys.readouterr().out
    assert "Turn 1 of 10." in first
    # a model that was never trained finds no words for an action
    assert "dropped episode: " in first
    main(["--out", str(tmp_path), "--episodes", "2"])
    assert "2 episodes in" in capsys.readouterr().out
    lines = (tmp_path / "episodes/episode_manifest.jsonl").read_text().splitlines()
    assert [json.loads(line)["episode_id"] for line in lines] == ["ep001", "ep002"]
    assert (tmp_path / "ep000.png").stat().st_size > 1000
