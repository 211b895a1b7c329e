"""vla-ppo learns: a little in the suite, and what the project promises of its small preset in `make learn`."""

from dataclasses import replace

import numpy as np
import pytest
import torch

from lookact.recipes.vla_ppo.config import PRESETS, EnvConfig, Evaluation, Learn
from lookact.recipes.vla_ppo.evaluate import run_episodes
from lookact.recipes.vla_ppo.task import open_policy
from lookact.recipes.vla_ppo.train import main, reinforce
from lookact.training.settings import PPO

TABLE = EnvConfig(task="reach", cameras=("head",), image_size=16, max_steps=8)


def rewards(policy):
    """What a policy earns, greedily, on 32 starts that it was never trained on."""
    how = {"shift": "none", "seed": 0, "split": "test", "episodes": 32, "num_envs": 8, "workers": 1, "greedy": True}
    return np.array([result.reward for result in run_episodes(policy, TABLE, **how)])


@pytest.mark.slow
def test_reward_alone_brings_the_arm_nearer_to_what_it_shall_reach(train):
    torch.set_num_threads(1)
    debug = PRESETS["debug"]
    cfg = replace(
        debug,
        model=replace(debug.model, vision=replace(debug.model.vision, image_size=16)),
        env=TABLE,
        learn=Learn(iterations=12, num_envs=8, rollout_steps=24, workers=1, lr=1e-3, critic_warmup=2),
        ppo=PPO(gamma=0.9, minibatch=128),
        evaluation=Evaluation(every=100, episodes=2, num_envs=2, workers=1),
    )
    policy = open_policy(cfg.model, cfg.env, seed=cfg.seed)
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
    cfg = replace(preset, seed=seed, evaluation=replace(preset.evaluation, ood_episodes=0))
    assert cfg.env.task == "pick_place"
    assert cfg.evaluation.final_episodes >= 100
    result = train(main, cfg)
    before, after = (result[when]["greedy"]["success_rate"] for when in ("before", "after"))
    # a clone this good leaves PPO little to add, and it must not spoil it
    assert before >= 0.90
    assert after >= 0.95
