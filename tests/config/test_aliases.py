"""Old names of settings and metrics work for one release, wherever they can be given, and nowhere shadow a live one."""

import importlib
import json
import logging
from pathlib import Path

import pytest
import yaml

from lookact.cli import launch, main
from lookact.cli.recipes import RECIPES
from lookact.config import aliases, settings
from lookact.config.aliases import METRICS, SETTINGS, current_setting, renew_mapping, renew_metrics, renew_words
from lookact.errors import ConfigError
from lookact.plots.learning_curve import read_metrics
from lookact.training.run_files import saved_leaves
from lookact.viewer.metrics import as_columns

LAST_RELEASE = Path(__file__).with_name("settings-0.1.txt").read_text(encoding="utf-8").splitlines()
"""A line a recipe: its name, and those of all its settings as they were in 0.1."""
ROWS = [(recipe, old, new) for recipe, renamed in SETTINGS.items() for old, new in renamed.items()]
TABLE = {"warm_start.": "sft.", "warm_start.demos": "sft.demonstrations", "learn.blame": "loss.weight", "ray.": ""}
TABLE |= {"old_flag": "flag", "learn.dead": ""}


@pytest.fixture(autouse=True)
def warnings():
    """The logger of old names as a new process has it, afterwards too."""
    logger = logging.getLogger(aliases.__name__)
    logger.setLevel(logging.NOTSET)
    yield logger
    logger.setLevel(logging.NOTSET)


@pytest.fixture
def table(monkeypatch):
    monkeypatch.setitem(SETTINGS, "nav-rloo", TABLE)


def live_names(recipe: str) -> list[str]:
    module = importlib.import_module(RECIPES[recipe].rpartition(".")[0] + ".config")
    return [leaf.name for leaf in settings(module.Config)]


def test_every_recipe_has_a_table():
    assert set(SETTINGS) == set(RECIPES)


@pytest.mark.parametrize(("recipe", "old", "new"), ROWS)
def test_an_alias_leads_to_a_live_setting_and_shadows_none(recipe, old, new):
    names = live_names(recipe)
    assert old.endswith(".") == new.endswith(".") or not new, "a prefix stands for a prefix"
    if new:
        reached = [name for name in names if name.startswith(new)] if new.endswith(".") else [new] * (new in names)
        assert reached, f"{new} is no setting of {recipe}"
        assert current_setting(recipe, reached[0]) == reached[0], f"{old} leads to {new}, which is an old name itself"
    assert not [name for name in names if f"{name}.".startswith(old + "." * (not old.endswith(".")))], f"{old} lives"


@pytest.mark.parametrize("line", LAST_RELEASE, ids=lambda line: line.partition(":")[0])
def test_every_setting_of_the_last_release_is_live_or_has_an_alias(line):
    recipe, _, names = line.partition(": ")
    known = {*live_names(recipe), ""}
    assert not [name for name in names.split() if current_setting(recipe, name) not in known]


def test_a_metric_alias_leads_to_a_name_that_is_no_alias():
    assert not set(METRICS) & set(METRICS.values())


def test_words_of_the_command_line(table, caplog):
    words = ["--warm_start.demos", "240", "--learn.blame=0.5", "--no-old-flag", "--warm-start.epochs", "3", "--seed=1"]
    new = ["--sft.demonstrations", "240", "--loss.weight=0.5", "--no-flag", "--sft.epochs", "3", "--seed=1"]
    with caplog.at_level(logging.WARNING):
        assert renew_words("nav-rloo", words) == new
    assert [record.message.split("; ")[0] for record in caplog.records] == [
        "warm_start.demos is now called sft.demonstrations",
        "learn.blame is now called loss.weight",
        "old_flag is now called flag",
        "warm_start.epochs is now called sft.epochs",
    ]
    assert renew_words("nav-rloo", ["--warm_start", "none"]) == ["--sft", "none"]
    assert renew_words("mine", words) == words


def test_a_setting_that_is_gone_takes_its_values_along(table, caplog):
    words = ["--learn.dead", "1", "2", "--ray.workers=2", "--seed", "3"]
    assert renew_words("nav-rloo", words) == ["--seed", "3"]
    assert "learn.dead is no longer a setting: ignored" in caplog.text
    assert renew_mapping("nav-rloo", {"ray": {"workers": 2}, "seed": 3}) == {"seed": 3}


def test_a_file_moves_across_groups(table):
    old = {"warm_start": {"demos": 240, "epochs": 3}, "learn": {"blame": 0.5, "lr": 1e-4}, "sampling": {}}
    new = {"sft": {"demonstrations": 240, "epochs": 3}, "loss": {"weight": 0.5}, "learn": {"lr": 1e-4}, "sampling": {}}
    assert renew_mapping("nav-rloo", old) == new
    assert renew_mapping("nav-rloo", {"warm_start": None}) == {"sft": None}
    assert renew_mapping("nav-rloo", new) == new


def test_a_file_with_both_names_is_refused(table):
    with pytest.raises(ConfigError, match=r"^learn\.blame is the old name of loss\.weight, and both are given: keep"):
        renew_mapping("nav-rloo", {"learn": {"blame": 0.5}, "loss": {"weight": 1}})


def test_old_names_on_the_command_line_and_in_a_file(tmp_path, monkeypatch, capsys):
    monkeypatch.setitem(SETTINGS, "nav-rloo", {"learn.speed": "learn.lr"})
    file = tmp_path / "old.yaml"
    file.write_text("learn:\n  speed: 0.5\n", encoding="utf-8")
    assert main(["config", "nav-rloo", "--config", str(file), "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["learn"]["lr"] == 0.5
    assert main(["config", "nav-rloo", "--learn.speed=0.25", "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["learn"]["lr"] == 0.25
    assert main(["train", "nav-rloo", "--help"]) == 0
    assert "learn.speed" not in capsys.readouterr().out


def test_the_config_of_a_saved_run(tmp_path, monkeypatch):
    monkeypatch.setitem(SETTINGS, "nav-rloo", {"learn.speed": "learn.lr", "learn.dead": ""})
    (tmp_path / "run.json").write_text(json.dumps({"recipe": "nav-rloo"}), encoding="utf-8")
    (tmp_path / "config.yaml").write_text(yaml.safe_dump({"learn": {"speed": 0.5, "dead": 1}}), encoding="utf-8")
    assert saved_leaves(tmp_path / "config.yaml") == {"learn.lr": 0.5}


def test_metrics_of_a_saved_run(tmp_path, monkeypatch):
    monkeypatch.setitem(METRICS, "rollout/old", "rollout/new")
    line = {"step": 1, "rollout/old": 0.5}
    assert renew_metrics(line) == {"step": 1, "rollout/new": 0.5}
    assert as_columns([line])[0] == {"step": [1], "rollout/new": [0.5]}
    (tmp_path / "metrics.jsonl").write_text(json.dumps(line) + "\n", encoding="utf-8")
    for key in ("rollout/old", "rollout/new"):
        assert read_metrics(tmp_path, key)[1].tolist() == [0.5]


def test_the_launcher_alone_warns(monkeypatch, warnings):
    monkeypatch.setenv("TORCHELASTIC_RUN_ID", f"{launch.RUN_ID}1")
    monkeypatch.setattr(launch.sys, "platform", "test")
    launch.prepare_process()
    assert warnings.level == logging.ERROR
