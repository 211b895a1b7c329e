import shlex
import sys
from dataclasses import replace
from pathlib import Path

import pytest

from lookact.cli import demo_plan
from lookact.cli.demo_plan import next_commands, own_name, phases, plan_lines, spoken_time
from lookact.cli.parser import find_command
from lookact.recipes.rloo.config import PRESETS

SMALL = PRESETS["small"]


def test_what_comes_is_told_with_its_time_and_its_picture():
    text = "\n".join(plan_lines(SMALL, Path("runs/nav-rloo/demo-1"), processes=2))
    assert "On 2 CPU cores" in text
    assert "Nothing is downloaded, nothing opens." in text
    assert "learning-curve.png, redrawn as it learns" in text
    assert str(Path("runs/nav-rloo/demo-1/plots")) in text
    assert text.count("about") == 5
    assert "On one CPU core" in "\n".join(plan_lines(SMALL, Path("x"), processes=1))


def test_a_second_core_halves_the_learning_and_more_updates_lengthen_it():
    one, two = (phases(SMALL, processes)[2].seconds for processes in (1, 2))
    assert one == pytest.approx(2 * two)
    # nothing but the updates, and the evaluations among them, takes time in this phase
    longer = replace(SMALL, learn=replace(SMALL.learn, iterations=2 * SMALL.learn.iterations))
    assert phases(longer, 1)[2].seconds == pytest.approx(2 * one, rel=0.05)


@pytest.mark.parametrize(
    ("seconds", "words"), [(3, "about 10 s"), (44, "about 40 s"), (125, "about 2 min"), (140, "about 2.5 min")]
)
def test_times_are_told_roughly(seconds, words):
    assert spoken_time(seconds) == words


@pytest.mark.parametrize("served", [True, False])
def test_the_next_commands_parse(monkeypatch, served):
    monkeypatch.setattr(demo_plan.importlib.util, "find_spec", lambda name: object() if served else None)
    commands = [words for words, _ in next_commands(Path("runs/nav-rloo/demo-1"), "small", 2)]
    assert len(commands) == 3
    assert ("--out" in commands[1]) is not served
    for words in map(shlex.split, commands):
        find_command(words[0])[1].parse_args(words[1:])


def test_commands_are_told_as_they_can_be_typed_here(monkeypatch, tmp_path):
    monkeypatch.chdir(tmp_path)
    script = tmp_path / ".venv/bin/lookact"
    script.parent.mkdir(parents=True)
    script.touch()
    monkeypatch.setattr(sys, "argv", [str(script)])
    monkeypatch.setattr(demo_plan.shutil, "which", lambda name: None)
    assert own_name() == str(Path(".venv/bin/lookact"))
    monkeypatch.setattr(demo_plan.shutil, "which", lambda name: str(script))
    assert own_name() == "lookact"
    monkeypatch.setattr(sys, "argv", ["/elsewhere/lookact/__main__.py"])
    assert own_name() == f"{sys.executable} -m lookact"
