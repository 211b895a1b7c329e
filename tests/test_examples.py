"""The examples run, offline, and say what they promise."""

import json
import os
import runpy
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

import lookact

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


@pytest.mark.slow
def test_a_task_in_a_package_of_its_own_is_found_by_its_name_and_learned(tmp_path):
    build = [sys.executable, "-m", "pip", "wheel", "--quiet", "--no-deps", "--no-build-isolation", "-w", str(tmp_path)]
    # a copy: building leaves folders behind
    shutil.copytree(EXAMPLES / "own_task", tmp_path / "own_task")
    subprocess.run([*build, str(tmp_path / "own_task")], check=True)
    (wheel,) = tmp_path.glob("*.whl")
    site = tmp_path / "site"
    install = [sys.executable, "-m", "pip", "install", "--quiet", "--no-deps", "--no-index", "--target", str(site)]
    subprocess.run([*install, str(wheel)], check=True)
    train = [sys.executable, "-m", "lookact", "train", "rloo", "--task", "where-is-red", "--preset", "debug"]
    sizes = ["--sft.demonstrations", "600", "--sft.epochs", "4", "--evaluation.final_episodes", "60"]
    paths = os.pathsep.join([str(site), str(Path(lookact.__file__).parents[1])])
    env = {**os.environ, "PYTHONPATH": paths}
    subprocess.run([*train, *sizes, "--out", str(tmp_path / "runs")], env=env, check=True, cwd=tmp_path)
    result = json.loads(next(tmp_path.glob("runs/*/where-is-red-debug-seed0/result.json")).read_text())
    # one place of three is chance; after SFT several seeds answer all
    assert result["before"]["greedy"]["success_rate"] > 0.8
