from dataclasses import replace

import numpy as np
import pytest

from lookact.config import to_mapping
from lookact.data.lerobot.read import read_info
from lookact.envs.tabletop.experts import record
from lookact.errors import ConfigError
from lookact.recipes.vla_ppo import train as vla_train
from lookact.recipes.vla_ppo.config import PRESETS, Config
from lookact.recipes.vla_ppo.evaluate import attempts
from lookact.recipes.vla_ppo.preflight import check_training
from lookact.recipes.vla_ppo.task import hindsight_demonstrations, open_policy, table_maker
from lookact.recipes.vla_ppo.train import main
from lookact.training.preflight import Job
from lookact.training.run import open_run

DEBUG = PRESETS["debug"]
CFG = replace(
    DEBUG,
    stage="bc",
    env=replace(DEBUG.env, task="push", max_steps=40, image_size=16, cameras=("head",)),
    model=replace(DEBUG.model, vision=replace(DEBUG.model.vision, image_size=16)),
    bc=replace(DEBUG.bc, pretrain_images=8, demos=2, workers=1, hindsight_episodes=4),
    evaluation=replace(DEBUG.evaluation, final_episodes=0, workers=1),
)
IDLE = np.array([0, 0, 1, -1], np.float32)


def train(cfg: Config, folder) -> None:
    with open_run(folder, to_mapping(cfg), auto_resume=True, tensorboard=False) as run:
        main(cfg, run)


def given_up(policy, cfg, **how):
    """The expert's pushes, given up two steps before their end; the last does nothing at all."""
    env = table_maker(replace(cfg.env, cameras=()))()
    found = [(seed, [*record(env, seed=seed).actions[:-2], *[IDLE] * 40][:40]) for seed in range(3)]
    return [*found, (3, [IDLE] * 40)]


def test_failed_pushes_are_cloned_as_what_they_did(tmp_path, monkeypatch):
    monkeypatch.setattr(vla_train, "attempts", given_up)
    folder = tmp_path / "run"
    train(CFG, folder)
    kept = read_info(folder / "warm_start" / "hindsight_demos")
    assert 1 <= kept["total_episodes"] <= 3
    alone, more = (sorted((folder / "warm_start" / name).glob("checkpoint-*"))[-1] for name in ("bc", "bc_hindsight"))
    steps = [int(each.name.rpartition("-")[2]) for each in (alone, more)]
    assert steps[1] >= steps[0]
    # a resumed run asks the policy for nothing again
    (folder / "warm_start" / "metrics.json").unlink()
    monkeypatch.setattr(vla_train, "attempts", lambda *_, **__: pytest.fail("sampled again"))
    train(CFG, folder)


def test_the_policys_own_episodes_have_their_seeds_and_actions(tmp_path):
    policy = open_policy(CFG.model, CFG.env, seed=0)
    own = attempts(policy, CFG, split="hindsight", episodes=4)
    assert len({seed for seed, _ in own}) == 4
    assert all(len(actions) == 40 and actions[0].shape == (4,) for _, actions in own)
    # what moved nothing is no demonstration
    assert hindsight_demonstrations(CFG, tmp_path, lambda: [(seed, [IDLE] * 40) for seed, _ in own]) == []


def test_only_pushes_are_relabelled(tmp_path):
    job = Job("train", tmp_path)
    with pytest.raises(ConfigError, match="relabels pushes"):
        check_training(replace(CFG, env=replace(CFG.env, task="stack")), job)
