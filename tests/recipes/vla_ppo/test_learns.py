"""vla-ppo learns: a little in the suite, and what the project promises of its small preset in `make learn`."""

from dataclasses import replace

import numpy as np
import pytest
import torch

from lookact.recipes.vla_ppo.config import PRESETS, Evaluation, Learn, World
from lookact.recipes.vla_ppo.evaluate import run_episodes
from lookact.recipes.vla_ppo.model import open_policy
from lookact.recipes.vla_ppo.train import main
from lookact.recipes.vla_ppo.update import reinforce
from lookact.training.settings import PPO

TABLE = World(task="reach", cameras=("head",), image_size=16, max_steps=8)


def rewards(policy):
    """What a policy earns, greedily, on 32 starts that it was never trained on."""
    how = {"shift": "none", "seed": 0, "split": "test", "episodes": 32, "rows": 8, "workers": 1, "greedy": True}
    return np.array([course.reward for course in run_episodes(policy, TABLE, **how)])


@pytest.mark.slow
def test_reward_alone_brings_the_arm_nearer_to_what_it_shall_reach(train):
    torch.set_num_threads(1)
    debug = PRESETS["debug"]
    cfg = replace(
        debug,
        model=replace(debug.model, vision=replace(debug.model.vision, image_size=16)),
        world=TABLE,
        learn=Learn(updates=12, rows=8, steps=24, workers=1, lr=1e-3, critic_warmup=2),
        ppo=PPO(gamma=0.9, minibatch=128),
        evaluation=Evaluation(every=100, episodes=2, rows=2, workers=1),
    )
    policy = open_policy(cfg.model, cfg.world, seed=cfg.seed)
    policy.freeze_encoders()
    before = rewards(policy)
    train(lambda cfg, run: reinforce(policy, cfg, run), cfg)
    gained = rewards(policy) - before
    # start by start, since both began from the same ones
    error = gained.std(ddof=1) / len(gained) ** 0.5
    assert gained.mean() > 0.1
    assert gained.mean() > 4 * error


@pytest.mark.learn
@pytest.mark.parametrize("seed", [0, 1, 2])
def test_reward_adds_to_what_demonstrations_gave(train, seed):
    preset = PRESETS["small"]
    cfg = replace(preset, seed=seed, evaluation=replace(preset.evaluation, outside=0))
    assert cfg.world.task == "pick_place"
    assert cfg.evaluation.final_episodes >= 100
    result = train(main, cfg)
    before, after = (result[when]["greedy"]["success_rate"] for when in ("before", "after"))
    assert 0.30 <= before <= 0.80
    assert after - before >= 0.20
