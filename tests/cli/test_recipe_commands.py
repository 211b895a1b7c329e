import json
import logging
import sys
import types

import pytest
import yaml

import lookact
from lookact.cli import bench, main
from lookact.cli.recipes import RECIPES as REAL_RECIPES
from lookact.config.aliases import SETTINGS


def output(capsys, *words) -> str:
    assert main(words) == 0, capsys.readouterr().err
    return capsys.readouterr().out


def test_train_lays_words_over_file_over_preset(tmp_path, capsys):
    (tmp_path / "my.yaml").write_text("group_size: 4\noptim: {lr: 1e-2}\n")
    words = ("train", "toy", "--preset", "debug", "--config", "my.yaml", "--optim.lr", "0.5", "--seed", "3", "--json")
    result = json.loads(output(capsys, *words))
    assert (result["group_size"], result["lr"], result["seed"]) == (4, 0.5, 3)
    assert result["folder"] == "runs/toy/debug-seed3"
    saved = yaml.safe_load((tmp_path / "runs/toy/debug-seed3/config.yaml").read_text())
    assert saved["optim"]["lr"] == 0.5
    assert len((tmp_path / "runs/toy/debug-seed3/metrics.jsonl").read_text().splitlines()) == 2


def test_levels_of_the_log_are_chosen_for_console_and_run(tmp_path, capsys):
    words = ("train", "toy", "--console-level", "Warning", "--file-level", "error", "--name")
    assert main([*words, "quiet"]) == 0
    assert logging.getLogger("lookact").handlers[0].level == logging.WARNING
    assert main(["train", "toy", "--name", "usual"]) == 0
    assert logging.getLogger("lookact").handlers[0].level == logging.INFO
    quiet, usual = ((tmp_path / "runs/toy" / name / "training.log").read_text() for name in ("quiet", "usual"))
    assert (quiet, "INFO" in usual) == ("", True)
    capsys.readouterr()
    assert main(["train", "toy", "--console-level", "loud"]) == 2
    error = capsys.readouterr().err
    assert error.count("\n") == 1
    assert "--console-level" in error
    assert "'loud'" in error


def test_train_prints_a_table_and_where_the_run_is(capsys):
    text = output(capsys, "train", "toy", "--name", "first", "--out", "elsewhere")
    assert "group size" in text
    assert "75%" in text
    assert "the run is in elsewhere/toy/first" in text


def test_a_second_run_of_the_same_name_is_refused_unless_it_goes_on(capsys):
    output(capsys, "train", "toy", "--name", "n", "--optim.lr", "0.25")
    assert main(["train", "toy", "--name", "n"]) == 2
    capsys.readouterr()
    result = json.loads(output(capsys, "train", "toy", "--name", "n", "--auto-resume", "--json"))
    # the run's own config is kept
    assert result["lr"] == 0.25


def test_a_run_of_an_earlier_version_goes_on_under_todays_names(tmp_path, monkeypatch, capsys, caplog):
    output(capsys, "train", "toy", "--name", "n", "--optim.lr", "0.25")
    saved = tmp_path / "runs/toy/n/config.yaml"
    assert "  lr: 0.25" in saved.read_text()
    saved.write_text(saved.read_text().replace("  lr: 0.25", "  speed: 0.25\n  dead: 3"))
    monkeypatch.setitem(SETTINGS, "toy", {"optim.speed": "optim.lr", "optim.dead": ""})
    result = json.loads(output(capsys, "train", "toy", "--name", "n", "--auto-resume", "--json"))
    assert result["lr"] == 0.25
    assert "optim.speed is now called optim.lr" in caplog.text
    assert "changed since this run began" not in caplog.text
    assert "speed" not in saved.read_text()


def test_a_run_records_its_recipe_and_preset(tmp_path, capsys):
    output(capsys, "train", "toy", "--preset", "debug", "--name", "n")
    record = json.loads((tmp_path / "runs/toy/n/run.json").read_text())
    assert record == {"recipe": "toy", "preset": "debug", "config": None, "lookact": lookact.__version__}
    # going on is still the same preset
    output(capsys, "train", "toy", "--name", "n", "--auto-resume")
    assert json.loads((tmp_path / "runs/toy/n/run.json").read_text()) == record


def test_a_run_from_a_file_is_called_by_the_file(tmp_path, capsys):
    (tmp_path / "my.yaml").write_text("group_size: 4\n")
    assert "the run is in runs/toy/my-seed0" in output(capsys, "train", "toy", "--config", "my.yaml")
    record = json.loads((tmp_path / "runs/toy/my-seed0/run.json").read_text())
    assert (record["preset"], record["config"]) == (None, "my.yaml")


@pytest.mark.parametrize("fail", ["preflight", "refused"])
def test_a_refused_start_leaves_no_run_behind(fail, tmp_path, capsys):
    assert main(["train", "toy", "--fail", fail, "--name", "n"]) == 2
    assert capsys.readouterr().err.startswith("lookact: ")
    assert not (tmp_path / "runs/toy/n").exists()


def test_a_refusal_in_a_run_that_was_there_before_removes_nothing(tmp_path, capsys):
    output(capsys, "train", "toy", "--name", "n")
    assert main(["train", "toy", "--name", "n", "--auto-resume", "--fail", "refused"]) == 2
    assert (tmp_path / "runs/toy/n/result.json").exists()


@pytest.mark.parametrize("words", [("eval", "--dummy"), ("collect", "--episodes", "1", "--out", "runs/toy/eval")])
def test_eval_and_collect_check_before_they_begin(words, tmp_path, capsys):
    assert main([words[0], "toy", "--fail", "preflight", *words[1:]]) == 2
    assert capsys.readouterr().err == f"lookact: {words[0]} has no GPU: set --device cpu\n"
    assert not (tmp_path / "runs").exists()


def test_only_the_first_of_several_processes_checks(monkeypatch, capsys):
    monkeypatch.setenv("RANK", "1")
    output(capsys, "eval", "toy", "--fail", "preflight", "--dummy")


def test_settings_changed_on_resume_are_said_one_by_one(tmp_path, capsys):
    output(capsys, "train", "toy", "--name", "n")
    assert main(["train", "toy", "--name", "n", "--auto-resume", "--optim.lr", "0.5", "--no-whiten"]) == 0
    error = capsys.readouterr().err
    assert "changed since this run began: whiten: True → False" in error
    assert "changed since this run began: optim.lr: 0.0001 → 0.5" in error
    assert "optim.lr" in (tmp_path / "runs/toy/n/config_history.jsonl").read_text()


def test_config_prints_yaml_that_train_takes_back(tmp_path, capsys):
    text = output(capsys, "config", "toy", "--preset", "full", "--optim.schedule", "constant", "--no-whiten")
    assert "group_size: 64  # episodes that share a baseline" in text
    (tmp_path / "my.yaml").write_text(text)
    again = json.loads(output(capsys, "config", "toy", "--config", "my.yaml", "--json"))
    assert again == yaml.safe_load(text)
    assert again["whiten"] is False


def test_recipe_help_lists_every_setting_with_type_value_and_help(capsys):
    text = output(capsys, "train", "toy", "--help", "--preset", "debug")
    line = next(line for line in text.splitlines() if "--group_size" in line)
    assert "2" in line
    assert "a whole number" in line
    assert "episodes that share a baseline" in line
    assert "--optim.lr" in text
    assert "one of constant, cosine" in text


def test_eval_passes_everything_on(tmp_path, capsys):
    result = json.loads(output(capsys, "eval", "toy", "--dummy", "--episodes", "7", "--greedy", "--json"))
    assert result["asked"] == ["None", 7, True, True, 8]
    assert (tmp_path / "runs/toy/eval/seen.json").exists()


def test_max_questions_counts_episodes(capsys):
    assert json.loads(output(capsys, "eval", "toy", "--dummy", "--max-questions", "2", "--json"))["asked"][1] == 2


def test_eval_takes_the_config_of_the_checkpoints_run(tmp_path, capsys):
    (tmp_path / "run/checkpoint-3").mkdir(parents=True)
    (tmp_path / "run/config.yaml").write_text("group_size: 5\n")
    words = ("eval", "toy", "--checkpoint", "run/checkpoint-3", "--output", "deep/result.json")
    assert "50% [40, 60]" in output(capsys, *words)
    result = json.loads((tmp_path / "deep/result.json").read_text())
    assert result["asked"] == ["run/checkpoint-3", 200, False, False, 5]


def test_collect_passes_everything_on(tmp_path, capsys):
    result = json.loads(output(capsys, "collect", "toy", "--episodes", "3", "--out", "episodes", "--json"))
    assert result == {"episodes": 3, "checkpoint": "None", "out": "episodes"}
    assert (tmp_path / "episodes").is_dir()


def test_training_keeps_its_result_and_the_seconds_of_its_steps(tmp_path, capsys):
    output(capsys, "train", "toy", "--name", "n")
    result = json.loads((tmp_path / "runs/toy/n/result.json").read_text())
    assert result["seconds"] == {"imitating": 5.0, "training steps": 60.0}


def test_a_process_that_we_launched_leaves_all_talking_to_the_launcher(tmp_path, monkeypatch, capsys):
    monkeypatch.setenv("TORCHELASTIC_RUN_ID", "lookact-7")
    monkeypatch.setenv("TORCHELASTIC_ERROR_FILE", str(tmp_path / "note.json"))
    assert output(capsys, "train", "toy", "--name", "n", "--processes", "1") == ""
    assert main(["train", "toy", "--name", "n"]) == 2
    assert "lookact:" not in capsys.readouterr().err
    note = json.loads((tmp_path / "note.json").read_text())
    assert "holds a run" in note["message"]
    assert (note["code"], note["ours"]) == (2, True)


def test_bench_runs_all_and_names_the_closest(monkeypatch, capsys):
    module = types.ModuleType("toy_bench")
    vars(module).update(main=lambda: {"ratio": 3.5}, __spec__=types.SimpleNamespace())
    monkeypatch.setitem(sys.modules, "toy_bench", module)
    monkeypatch.setattr(bench, "BENCHES", {"toy": "toy_bench"})
    assert json.loads(output(capsys, "bench", "all", "--json")) == {"toy": {"ratio": 3.5}}
    assert main(["bench", "toyy"]) == 2
    assert "did you mean toy?" in capsys.readouterr().err


@pytest.mark.parametrize("recipe", REAL_RECIPES)
def test_the_real_table_names_recipes_as_users_write_them(recipe):
    folder = {"nav-rloo": "rloo", "vqa-ppo": "ppo"}.get(recipe, recipe.replace("-", "_"))
    assert REAL_RECIPES[recipe] == f"lookact.recipes.{folder}.train"


@pytest.mark.parametrize(("folder", "recipe"), [("rloo", "nav-rloo"), ("ppo", "vqa-ppo")])
def test_a_recipe_answers_to_its_folders_name(folder, recipe, monkeypatch, capsys):
    monkeypatch.setattr("lookact.cli.recipes.RECIPES", REAL_RECIPES)
    assert output(capsys, "config", folder) == output(capsys, "config", recipe)
