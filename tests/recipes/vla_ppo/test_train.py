"""Whole runs of vla-ppo that take seconds: stages, resumption, evaluation, collection, and every way to fail."""

import json
import shutil
from dataclasses import replace
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file

from lookact.cli import main as command
from lookact.config import check, to_mapping
from lookact.data.episode_store import EpisodeStore
from lookact.errors import ConfigError, DataError
from lookact.recipes.vla_ppo import start as vla_start
from lookact.recipes.vla_ppo.config import PRESETS, Config, Evaluation, Model, Start, Text, Vision, World
from lookact.recipes.vla_ppo.train import collect, evaluate, main
from lookact.training.run import open_run

CFG = Config(
    stage="bc",
    model=Model(
        vision=Vision(image_size=16, hidden=32, layers=1, glances=2), text=Text(hidden=32), width=16, layers=1, heads=2
    ),
    world=World(task="reach", image_size=16, cameras=("head",), max_steps=20),
    start=Start(
        looks=12, look_epochs=1, look_rows=4, demos=3, epochs=2, rows=8, save_every=1, workers=1, freeze_eyes=True
    ),
    evaluation=Evaluation(final_episodes=0, rows=2, workers=1),
)


class Killed(Exception):
    pass


def train(cfg: Config, folder: Path) -> dict:
    with open_run(folder, to_mapping(cfg), auto_resume=True, tensorboard=False) as run:
        return main(cfg, run)


@pytest.fixture(scope="module")
def cloned(tmp_path_factory) -> Path:
    folder = tmp_path_factory.mktemp("runs") / "cloned"
    train(CFG, folder)
    return folder


def test_presets_are_within_their_bounds():
    for preset in PRESETS.values():
        check(preset)


def test_a_cloned_run_holds_what_it_learned_from(cloned):
    start = cloned / "warm_start"
    assert (start / "model.safetensors").exists()
    assert json.loads((start / "demos/meta/info.json").read_text())["total_episodes"] == 3
    for phase in ("seeing", "cloning"):
        lines = [json.loads(line) for line in (start / phase / "metrics.jsonl").read_text().splitlines()]
        assert all(line[f"loss/{phase}"] > 0 for line in lines)
    assert [line["step"] for line in lines] == list(range(1, len(lines) + 1))


@pytest.mark.slow
@pytest.mark.parametrize(("phase", "at"), [("looking_loss", 2), ("cloning_loss", 1), ("cloning_loss", 3)])
def test_killed_and_resumed_cloning_ends_as_the_unbroken_run(cloned, tmp_path, monkeypatch, phase, at):
    real = getattr(vla_start, phase)

    def killing(*args, **how):
        lesson = real(*args, **how)

        def short(numbers, step):
            if step == at:
                raise Killed
            return lesson(numbers, step)

        return short

    with monkeypatch.context() as patch:
        patch.setattr(vla_start, phase, killing)
        with pytest.raises(Killed):
            train(CFG, tmp_path / "run")
    train(CFG, tmp_path / "run")
    found, expected = (load_file(f / "warm_start/model.safetensors") for f in (tmp_path / "run", cloned))
    assert all(torch.equal(found[name], tensor) for name, tensor in expected.items())


def test_a_finished_start_is_taken_as_it_is(cloned, tmp_path, monkeypatch):
    shutil.copytree(cloned, tmp_path / "run")
    monkeypatch.setattr(vla_start, "learn_to_see", None)
    assert set(train(CFG, tmp_path / "run")) == {"seconds"}


def test_a_set_recorded_elsewhere_is_cloned(cloned, tmp_path):
    shutil.copytree(cloned / "warm_start/demos", tmp_path / "elsewhere")
    start = replace(CFG.start, folder=str(tmp_path / "elsewhere"), looks=0, freeze_eyes=False, epochs=1)
    train(replace(CFG, start=start), tmp_path / "run")
    assert not (tmp_path / "run/warm_start/demos").exists()
    assert (tmp_path / "run/warm_start/model.safetensors").exists()


def test_a_set_of_another_robot_ends_the_run_in_one_line(cloned, tmp_path, capsys):
    demos = cloned / "warm_start/demos"
    words = ["--preset", "debug", "--start.folder", str(demos), "--start.looks", "0", "--world.task", "reach"]
    assert command(["train", "vla-ppo", *words, "--out", str(tmp_path)]) == 2
    told = capsys.readouterr().err.strip().splitlines()[-1]
    assert told.startswith("lookact: ")
    assert "no video of wrist" in told


@pytest.mark.parametrize(("checkpoint", "error"), [(None, ConfigError), ("nowhere", DataError)])
def test_reinforcement_alone_needs_a_policy(tmp_path, checkpoint, error):
    with pytest.raises(error, match="checkpoint"):
        train(replace(CFG, stage="ppo", checkpoint=checkpoint), tmp_path / "run")


def test_a_checkpoint_of_another_model_is_refused(cloned, tmp_path):
    wider = replace(CFG, stage="ppo", checkpoint=str(cloned / "warm_start"), model=replace(CFG.model, width=32))
    with pytest.raises(DataError, match="it is of another model"):
        train(wider, tmp_path / "run")


@pytest.mark.slow
def test_a_checkpoint_and_random_actions_are_measured(cloned, tmp_path):
    how = {"episodes": 2, "greedy": True, "folder": tmp_path}
    trained = evaluate(CFG, checkpoint=cloned / "warm_start", dummy=False, **how)
    random = evaluate(CFG, checkpoint=None, dummy=True, **how)
    for report in (trained, random):
        assert set(report["ood"]) == {"vision", "semantics", "execution"}
        assert report["episodes"] == 2
    assert list(tmp_path.glob("in_distribution-000-*.mp4"))
    for kind in ("in_distribution", "vision", "semantics", "execution"):
        assert len(EpisodeStore(tmp_path / "episodes" / kind).ids()) == 2


@pytest.mark.slow
def test_demonstrations_are_collected_once(tmp_path, capsys):
    words = ["--demos", "2", "--world.task", "reach", "--world.image-size", "16", "--start.workers", "1", "--json"]
    assert command(["collect", "vla-ppo", "--out", str(tmp_path / "demos"), *words]) == 0
    assert json.loads(capsys.readouterr().out)["collected"] == 2
    assert command(["collect", "vla-ppo", "--out", str(tmp_path / "demos"), *words]) == 0
    assert json.loads(capsys.readouterr().out) == {"collected": 0, "kept": 2}
    with pytest.raises(DataError, match="holds 2 demonstrations, 3 are wanted"):
        collect(CFG, checkpoint=None, episodes=3, out=tmp_path / "demos")
    (tmp_path / "other").mkdir()
    (tmp_path / "other/letter").touch()
    with pytest.raises(DataError, match="holds other things"):
        collect(CFG, checkpoint=None, episodes=1, out=tmp_path / "other")
    with pytest.raises(ConfigError, match="leave --checkpoint out"):
        collect(CFG, checkpoint=tmp_path, episodes=1, out=tmp_path / "more")
