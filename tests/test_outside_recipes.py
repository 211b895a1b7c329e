"""Recipes from outside the package, through the real command line: files, modules, entry points, and bad ones."""

import json
import re
from pathlib import Path

import pytest
from safetensors.torch import load_file

from lookact.cli import main
from lookact.training.run_files import read_origin

PAGE = Path(__file__).parent.parent / "docs/tutorials/own-recipe.md"
TUTORIAL = re.search(r"```python\n(# reinforce_cartpole.py\n.*?)```", PAGE.read_text(encoding="utf-8"), re.DOTALL)[1]
SMALLEST = """
from dataclasses import dataclass

@dataclass(frozen=True)
class Config:
    lr: float = 0.1

def main(cfg, run):
    for step in run.steps(2):
        run.log({"loss/total": cfg.lr * step}, step)
"""
FEW = ("--iterations", "2", "--batch_size", "2")


@pytest.fixture(autouse=True)
def elsewhere(tmp_path, monkeypatch):
    """A working folder."""
    monkeypatch.chdir(tmp_path)


def refusal(capsys, *words) -> str:
    """The one line that a command ends with, as bad input does."""
    capsys.readouterr()
    assert main(words) == 2
    (line,) = capsys.readouterr().err.strip().splitlines()
    return line


def test_the_smallest_recipe_trains_and_lacks_the_rest(tmp_path, capsys):
    Path("smallest.py").write_text(SMALLEST)
    assert main(["train", "smallest.py", "--lr", "0.5"]) == 0
    run = Path("runs/smallest/small")
    assert [json.loads(line)["loss/total"] for line in (run / "metrics.jsonl").read_text().splitlines()] == [0.5, 1.0]
    origin = read_origin(run)
    assert (origin["recipe"], origin["source"]) == ("smallest", str(tmp_path / "smallest.py"))
    capsys.readouterr()
    assert main(["config", "smallest.py", "--lr", "2"]) == 0
    assert capsys.readouterr().out == "lr: 2.0\n"
    assert "recipe smallest has no evaluate(" in refusal(capsys, "eval", "smallest.py", "--dummy")
    assert "recipe smallest has no collect(" in refusal(capsys, "collect", "smallest.py", "--episodes=1", "--out=x")
    assert not Path("runs/smallest/eval").exists()
    assert "unknown setting lrr: did you mean lr?" in refusal(capsys, "train", "smallest.py", "--lrr", "1")
    assert "lr = 'fast': expected a number" in refusal(capsys, "train", "smallest.py", "--lr", "fast")


def test_the_tutorials_recipe_has_60_lines():
    assert len([line for line in TUTORIAL.splitlines() if line.strip()]) <= 62


def test_a_run_finds_its_recipe_again_and_a_resumed_one_ends_like_an_unbroken_one(tmp_path, capsys):
    Path("mine").mkdir()
    file = Path("mine/reinforce_cartpole.py")
    file.write_text(TUTORIAL)
    assert main(["train", str(file), *FEW, "--name", "broken"]) == 0
    assert main(["train", str(file), "--iterations", "3", "--batch_size", "2", "--name", "whole"]) == 0
    broken, whole = (Path("runs/reinforce_cartpole") / name for name in ("broken", "whole"))
    assert main(["train", str(broken), "--iterations", "3"]) == 0
    ended, expected = (load_file(run / "checkpoint-3/model.safetensors") for run in (broken, whole))
    assert all((ended[name] == weight).all() for name, weight in expected.items())
    capsys.readouterr()
    # by the run alone, by a checkpoint of it, by the recipe's bare name
    reports = []
    for words in ([str(whole)], [str(whole / "checkpoint-3")], ["reinforce_cartpole", "--checkpoint", f"{whole}/best"]):
        assert main(["eval", *words, "--episodes", "2", "--json"]) == 0
        reports.append(json.loads(capsys.readouterr().out))
    assert all(report["episodes"] == 2 and report["return"] >= 8 for report in reports)
    assert main(["view", "runs", "--out", "page.html"]) == 0
    assert "reinforce_cartpole" in Path("page.html").read_text()

    file.rename("moved.py")
    line = refusal(capsys, "eval", str(whole))
    assert f"was trained by {tmp_path}/mine/reinforce_cartpole.py, which is there no more" in line
    Path("reinforce_cartpole.py").write_text(TUTORIAL)
    assert main(["eval", "reinforce_cartpole.py", "--checkpoint", f"{whole}/best", "--episodes", "1"]) == 0


@pytest.mark.slow
def test_the_tutorials_recipe_learns(capsys):
    Path("reinforce_cartpole.py").write_text(TUTORIAL)
    assert main(["train", "reinforce_cartpole.py", "--iterations", "25", "--json"]) == 0
    result = json.loads(capsys.readouterr().out)
    assert result["before"]["return"] < 60
    assert result["after"]["return"] > 3 * result["before"]["return"]


@pytest.mark.slow
def test_processes_that_train_together_find_the_file(capsys):
    Path("reinforce_cartpole.py").write_text(TUTORIAL)
    assert main(["train", "reinforce_cartpole.py", *FEW, "--processes", "2", "--name", "two"]) == 0
    assert len(Path("runs/reinforce_cartpole/two/metrics.jsonl").read_text().splitlines()) == 2


def test_a_recipe_is_found_as_a_module_and_as_an_entry_point(tmp_path, monkeypatch, capsys):
    (tmp_path / "site/own_package").mkdir(parents=True)
    (tmp_path / "site/own_package/recipe.py").write_text(SMALLEST)
    installed = tmp_path / "site/own_package-1.0.dist-info"
    installed.mkdir()
    (installed / "METADATA").write_text("Metadata-Version: 2.1\nName: own-package\nVersion: 1.0\n")
    (installed / "entry_points.txt").write_text("[lookact.recipes]\nown-recipe = own_package.recipe\n")
    monkeypatch.syspath_prepend(tmp_path / "site")
    for words in (["--help"], ["train", "--help"]):
        assert main(words) == 0
        assert "own-recipe" in capsys.readouterr().out
    assert main(["train", "own_package.recipe"]) == 0
    assert main(["train", "own-recipe"]) == 0
    assert read_origin(Path("runs/own-recipe/small"))["source"] == "own_package.recipe"
    assert Path("runs/own_package.recipe/small/result.json").exists()
    assert "unknown recipe own-recip: did you mean own-recipe?" in refusal(capsys, "train", "own-recip")


@pytest.mark.parametrize(
    ("code", "line"),
    [
        ("def main(cfg, run)\n    pass", "could not be imported: SyntaxError: expected ':' (bad_recipe.py, line 1)"),
        ("import no_such_package", "there is no module no_such_package: check the name, or install what has it"),
        ("1 / 0", "bad_recipe.py could not be imported: ZeroDivisionError: division by zero"),
        ("def main(cfg, run): ...", "recipe bad_recipe.py has no dataclass Config: give it one"),
        (SMALLEST.replace("(frozen=True)", ""), "Config can be changed: write @dataclass(frozen=True) above it"),
        (SMALLEST.replace("def main", "def train"), "recipe bad_recipe.py has no main(cfg, run): give it one"),
        (SMALLEST.replace(" = 0.1", ""), "missing 1 required positional argument: 'lr': give every setting of Config"),
    ],
)
def test_a_bad_recipe_is_one_line_and_leaves_nothing(code, line, capsys):
    Path("bad_recipe.py").write_text(code)
    assert line in refusal(capsys, "train", "bad_recipe.py")
    assert not Path("runs").exists()


@pytest.mark.parametrize(
    ("word", "line"),
    [
        ("nothere.py", "nothere.py does not exist: check the path"),
        ("no.such.recipe", "there is no module no: check the name, or install what has it"),
        ("nav-rlo", "unknown recipe nav-rlo: did you mean nav-rloo?"),
        ("json", "recipe json has no dataclass Config"),
        ("random.py", "Python has another module of the name random: rename the file"),
        ("vla-ppo.py", "LookAct has a recipe vla-ppo: rename the file"),
    ],
)
def test_a_word_that_names_no_recipe_is_one_line(word, line, capsys):
    for name in ("random.py", "vla-ppo.py"):
        Path(name).write_text(SMALLEST)
    assert line in refusal(capsys, "train", word)


def test_a_recipe_that_fails_is_a_failed_run(capsys):
    Path("failing.py").write_text(SMALLEST.replace("    for", "    1 / 0\n    for"))
    assert main(["train", "failing.py"]) == 1
    assert "failed: ZeroDivisionError: division by zero (--debug shows where)" in capsys.readouterr().err
