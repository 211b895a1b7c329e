import json

import pytest

from lookact.cli import main, recipes
from lookact.cli.recipes import load_settings, recipe_title, settings_for, trained_by

NAV, VLA = "seed: 0\nsampling: {max_tokens: 12}\n", "seed: 0\nstage: both\nppo: {clip: 0.2}\n"


@pytest.fixture(autouse=True)
def real(monkeypatch, toy):
    """Recipes with settings of their own, beside the toy."""
    real = {"nav-rloo": "lookact.recipes.rloo.train", "vla-ppo": "lookact.recipes.vla_ppo.train"}
    monkeypatch.setattr(recipes, "RECIPES", recipes.RECIPES)
    recipes.RECIPES.update(real)


def refusal(capsys, *words) -> str:
    assert main(words) == 2
    error = capsys.readouterr().err
    assert error.count("\n") == 1
    return error.removeprefix("lookact: ").strip()


def checkpoint(folder, config, origin=None):
    folder.mkdir(parents=True)
    (folder / "config.yaml").write_text(config)
    if origin is not None:
        (folder / "run.json").write_text(json.dumps(origin))
    return folder


def test_the_recipe_is_as_recorded_else_by_folder_else_by_settings(tmp_path):
    recorded = checkpoint(tmp_path / "vla-ppo/a/best", VLA, {"recipe": "nav-rloo"})
    assert trained_by(recorded, "vla-ppo") == "nav-rloo"
    # the warm start has no record of its own: the run around it has
    (tmp_path / "vla-ppo/a/best/warm_start").mkdir()
    assert trained_by(tmp_path / "vla-ppo/a/best/warm_start", "vla-ppo") == "nav-rloo"
    named = checkpoint(tmp_path / "vla-ppo/b/checkpoint-3", NAV)
    assert trained_by(named, "nav-rloo") == "vla-ppo"
    nameless = checkpoint(tmp_path / "mine/c/best", VLA)
    assert trained_by(nameless, "nav-rloo") == "vla-ppo"
    assert trained_by(nameless, "vla-ppo") is None
    assert trained_by(checkpoint(tmp_path / "mine/d/best", "what: 1\n"), "vla-ppo") is None
    assert trained_by(checkpoint(tmp_path / "mine/e/best", "[\n"), "vla-ppo") is None


@pytest.mark.parametrize("origin", [None, {"recipe": "vla-ppo", "preset": "debug"}])
def test_another_recipes_checkpoint_is_refused_in_one_line(origin, tmp_path, capsys):
    path = checkpoint(tmp_path / "mine/a/best", VLA, origin)
    line = f"{path} was trained by vla-ppo: use lookact"
    assert refusal(capsys, "eval", "nav-rloo", "--checkpoint", str(path)) == f"{line} eval vla-ppo --checkpoint {path}"
    assert refusal(capsys, "train", "nav-rloo", "--resume", str(path)) == f"{line} train vla-ppo --resume {path}"
    words = ("collect", "nav-rloo", "--episodes", "1", "--out", "episodes", "--checkpoint", str(path))
    assert refusal(capsys, *words) == f"{line} collect vla-ppo --checkpoint {path}"
    assert not (tmp_path / "episodes").exists()
    assert not (tmp_path / "runs").exists()


def test_a_whole_run_is_no_checkpoint(tmp_path, capsys):
    run = checkpoint(tmp_path / "runs/toy/a", "seed: 0\n")
    (run / "metrics.jsonl").touch()
    assert refusal(capsys, "eval", "toy", "--checkpoint", str(run)) == (
        f"{run} is the folder of a run: it has no checkpoint yet"
    )
    (run / "checkpoint-2").mkdir()
    assert refusal(capsys, "eval", "toy", "--checkpoint", str(run)) == (
        f"{run} is the folder of a run: name one of its checkpoints, such as {run / 'checkpoint-2'}"
    )


def test_a_result_names_the_task_where_it_is_not_the_recipes_own():
    own = load_settings("nav-rloo")
    assert recipe_title("nav-rloo", own.PRESETS["debug"]) == "nav-rloo"
    other = settings_for(own, "frozen-lake")
    assert recipe_title("nav-rloo", other.PRESETS["debug"]) == "rloo on frozen-lake"
    # control recipes have no task but that of their environment
    assert recipe_title("vla-ppo", load_settings("vla-ppo").PRESETS["debug"]) == "vla-ppo"
