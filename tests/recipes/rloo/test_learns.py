"""nav-rloo learns: a little in the suite, and what the project promises of its demo in `make learn`."""

from dataclasses import replace

import numpy as np
import pytest

from lookact.algorithms.evaluation import run_specs
from lookact.recipes.rloo.config import PRESETS
from lookact.recipes.rloo.evaluate import open_checkpoint
from lookact.recipes.rloo.train import evaluate, main
from lookact.rollout.samplers.hf import HFSampler
from lookact.tasks.navigation import NavigationTask


def returns(cfg, checkpoint):
    """What a policy earns on 256 starts that it was never trained on."""
    chat = open_checkpoint(cfg, checkpoint)
    task = NavigationTask(cfg.env)
    actor = HFSampler(chat, cfg.sampling, system=cfg.instructions)
    episodes = run_specs(task.specs(cfg.seed, "test", groups=256), task.make_env, actor, num_envs=128, label="testing")
    return np.array([episode.total_reward for episode in episodes])


@pytest.mark.slow
def test_twenty_steps_of_reward_take_a_policy_further_than_it_was_shown(nav_started, nav_start, train, tmp_path):
    learn = replace(nav_started.learn, iterations=20, groups=12, group_size=8, lr=4e-4, loss_on="reply")
    learn = replace(learn, negative_advantage_weight=0.5)
    cfg = replace(nav_started, learn=learn, evaluation=replace(nav_started.evaluation, every=100))
    train(main, cfg)
    before, after = returns(cfg, nav_start), returns(cfg, tmp_path / "run/checkpoint-20")
    gained = after - before
    # start by start, since both walked from the same ones
    error = gained.std(ddof=1) / len(gained) ** 0.5
    assert gained.mean() > 0.1
    assert gained.mean() > 2 * error


@pytest.mark.learn
@pytest.mark.parametrize("seed", [0, 1, 2])
def test_the_demo_learns_to_navigate(train, tmp_path, seed):
    cfg = replace(PRESETS["small"], seed=seed)
    assert cfg.evaluation.final_episodes >= 200
    result = train(main, cfg)
    before, after = (result[when]["sampled"]["success_rate"] for when in ("before", "after"))
    assert before >= 0.30
    assert after - before >= 0.20
    random = evaluate(cfg, checkpoint=None, episodes=200, greedy=False, dummy=True, folder=tmp_path)
    assert random["success_rate"] < 0.10
