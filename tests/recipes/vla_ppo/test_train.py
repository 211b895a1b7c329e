"""Whole runs of vla-ppo that take seconds: stages, resumption, evaluation, collection, and every way to fail."""

import json
import shutil
from dataclasses import replace
from pathlib import Path

import pyarrow.parquet as pq
import pytest
import torch
from safetensors.torch import load_file

from lookact.algorithms import keypoint_pretraining
from lookact.cli import main as command
from lookact.config import check, to_mapping
from lookact.data.episode_store import EpisodeStore
from lookact.data.lerobot.read import read_stats
from lookact.errors import ConfigError, DataError
from lookact.models.vla.checkpoint import load_vla
from lookact.recipes.vla_ppo import train as vla_train
from lookact.recipes.vla_ppo.config import BC, PRESETS, Config, EnvConfig, Evaluation, Model, Text, Vision
from lookact.recipes.vla_ppo.evaluate import OOD_SHIFTS, run_episodes
from lookact.recipes.vla_ppo.task import action_bounds, load_checkpoint, open_policy
from lookact.recipes.vla_ppo.train import collect, evaluate, main
from lookact.training.run import open_run

CFG = Config(
    stage="bc",
    model=Model(
        vision=Vision(image_size=16, hidden=32, layers=1, pool_queries=2),
        text=Text(hidden=32),
        width=16,
        layers=1,
        heads=2,
    ),
    env=EnvConfig(task="reach", image_size=16, cameras=("head",), max_steps=20),
    bc=BC(
        pretrain_images=12,
        pretrain_epochs=1,
        pretrain_batch_size=4,
        demos=3,
        epochs=2,
        batch_size=8,
        save_every=1,
        workers=1,
        freeze_encoders=True,
    ),
    evaluation=Evaluation(final_episodes=0, num_envs=2, workers=1),
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
    for phase in ("vision_pretraining", "bc"):
        lines = [json.loads(line) for line in (start / phase / "metrics.jsonl").read_text().splitlines()]
        assert all(line[f"loss/{phase}"] > 0 for line in lines)
    assert [line["step"] for line in lines] == list(range(1, len(lines) + 1))


@pytest.mark.slow
def test_debug_learns(tmp_path):
    """Each phase of the debug preset has gradients above zero and changes weights."""
    torch.set_num_threads(1)
    evaluation = replace(PRESETS["debug"].evaluation, episodes=1, final_episodes=0, every=2)
    cfg = replace(PRESETS["debug"], evaluation=evaluation)
    train(cfg, tmp_path / "run")
    gradients = {
        phase: [
            json.loads(line)["optim/grad_norm"]
            for line in (tmp_path / "run" / phase / "metrics.jsonl").read_text().splitlines()
        ]
        for phase in ("warm_start/vision_pretraining", "warm_start/bc", "")
    }
    assert all(norm > 0 for norms in gradients.values() for norm in norms)
    fresh = open_policy(cfg.model, cfg.env, seed=cfg.seed).state_dict()
    cloned, last = (
        load_file(tmp_path / "run" / folder / "model.safetensors") for folder in ("warm_start", "checkpoint-2")
    )

    def changed(before, after):
        return {name.split(".")[0] for name in before if not torch.equal(before[name], after[name])}

    # PPO has its critic alone in the first iteration and the actor in the second, encoders frozen
    assert changed(fresh, cloned) >= {"vision_encoder", "text_encoder", "pooled", "fusion", "head"}
    assert changed(cloned, last) >= {"fusion", "head", "critic"}
    assert not changed(cloned, last) & {"vision_encoder", "text_encoder"}


@pytest.mark.slow
@pytest.mark.parametrize(("phase", "at"), [("keypoint_loss", 2), ("bc_loss", 1), ("bc_loss", 3)])
def test_killed_and_resumed_cloning_ends_as_the_unbroken_run(cloned, tmp_path, monkeypatch, phase, at):
    module = keypoint_pretraining if phase == "keypoint_loss" else vla_train
    real = getattr(module, phase)

    def killing(*args, **how):
        loss_fn = real(*args, **how)

        def short(numbers, step):
            if step == at:
                raise Killed
            return loss_fn(numbers, step)

        return short

    with monkeypatch.context() as patch:
        patch.setattr(module, phase, killing)
        with pytest.raises(Killed):
            train(CFG, tmp_path / "run")
    train(CFG, tmp_path / "run")
    found, expected = (load_file(f / "warm_start/model.safetensors") for f in (tmp_path / "run", cloned))
    assert all(torch.equal(found[name], tensor) for name, tensor in expected.items())


def test_a_finished_start_is_taken_as_it_is(cloned, tmp_path, monkeypatch):
    shutil.copytree(cloned, tmp_path / "run")
    monkeypatch.setattr(vla_train, "pretrain_keypoints", None)
    assert set(train(CFG, tmp_path / "run")) == {"seconds"}


def test_a_set_recorded_elsewhere_is_cloned(cloned, tmp_path):
    shutil.copytree(cloned / "warm_start/demos", tmp_path / "elsewhere")
    bc = replace(CFG.bc, dataset=str(tmp_path / "elsewhere"), pretrain_images=0, freeze_encoders=False, epochs=1)
    train(replace(CFG, bc=bc), tmp_path / "run")
    assert not (tmp_path / "run/warm_start/demos").exists()
    assert (tmp_path / "run/warm_start/model.safetensors").exists()


def test_a_set_with_other_names_and_units_is_cloned_and_acts_in_its_units(cloned, tmp_path):
    folder = shutil.copytree(cloned / "warm_start/demos", tmp_path / "elsewhere")
    text = (folder / "meta/info.json").read_text().replace("observation.images.head", "observation.images.top")
    (folder / "meta/info.json").write_text(text)
    (folder / "videos/observation.images.head").rename(folder / "videos/observation.images.top")
    episodes = folder / "meta/episodes/chunk-000/file-000.parquet"
    table = pq.ParquetFile(episodes).read()
    pq.write_table(table.rename_columns([name.replace(".head/", ".top/") for name in table.column_names]), episodes)
    bc = replace(CFG.bc, dataset=str(folder), pretrain_images=0, epochs=1, rename=("top=head",))
    bc = replace(bc, action_bounds="quantile")
    train(replace(CFG, bc=bc), tmp_path / "run")
    policy, stats = load_vla(tmp_path / "run/warm_start"), read_stats(folder)["action"]
    low, high = (torch.tensor(bound) for bound in policy.spec.action_bounds)
    # the gripper, which stays as it is in reaching, has no range
    for found, name in ((low, "q01"), (high, "q99")):
        torch.testing.assert_close(found[:3], torch.from_numpy(stats[name][:3]).float())
    torch.testing.assert_close(policy.executed(torch.tensor([[-1.0] * 4, [3.0] * 4])), torch.stack([low, high]))
    # PPO alone takes the bounds from the checkpoint
    later = replace(CFG, stage="ppo", checkpoint=str(tmp_path / "run/warm_start"))
    assert action_bounds(later) == policy.spec.action_bounds


def test_a_set_of_another_robot_ends_the_run_in_one_line(cloned, tmp_path, capsys):
    demos = cloned / "warm_start/demos"
    words = ["--preset", "debug", "--bc.dataset", str(demos), "--bc.pretrain_images", "0", "--env.task", "reach"]
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
        assert set(report["ood"]) == set(OOD_SHIFTS)
        assert report["episodes"] == 2
    assert list(tmp_path.glob("in_distribution-000-*.mp4"))
    for kind in ("in_distribution", *OOD_SHIFTS):
        assert len(EpisodeStore(tmp_path / "episodes" / kind).ids()) == 2


@pytest.mark.slow
@pytest.mark.slow
def test_a_flow_policy_is_cloned_saved_and_measured(cloned, tmp_path):
    cfg = replace(CFG, model=replace(CFG.model, action_head="flow", flow_steps=2), bc=replace(CFG.bc, epochs=1))
    shutil.copytree(cloned / "warm_start/demos", tmp_path / "run/warm_start/demos")
    train(replace(cfg, bc=replace(cfg.bc, pretrain_images=0)), tmp_path / "run")
    checkpoint = tmp_path / "run/warm_start"
    assert json.loads((checkpoint / "vla.json").read_text())["policy"]["action_head"] == "flow"
    policy = load_vla(checkpoint)
    how = {"shift": "none", "seed": 0, "split": "test", "episodes": 2, "num_envs": 2, "workers": 1}
    for greedy in (True, False):
        results = run_episodes(policy, cfg.env, greedy=greedy, **how)
        assert [result.error for result in results] == [None, None]
    with pytest.raises(DataError, match="head"):
        load_checkpoint(open_policy(CFG.model, CFG.env, seed=0), replace(CFG, stage="ppo", checkpoint=str(checkpoint)))


def test_demonstrations_are_collected_once(tmp_path, capsys):
    words = ["--demos", "2", "--env.task", "reach", "--env.image-size", "16", "--bc.workers", "1", "--json"]
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
