"""Reinforcement of a policy that looks, in real worlds of a few steps."""

import json
from dataclasses import replace

import numpy as np
import pytest
import torch
from safetensors.torch import load_file

from lookact.envs.tabletop.randomise import draw_start
from lookact.errors import ConfigError
from lookact.recipes.vla_ppo.config import PRESETS, EnvConfig, Evaluation, Learn
from lookact.recipes.vla_ppo.task import easy_start, open_policy, plan_iteration, start_fraction
from lookact.recipes.vla_ppo.train import reinforce
from lookact.seeding import derive
from lookact.training.settings import PPO

TABLE = EnvConfig(task="reach", cameras=("head",), image_size=16, max_steps=4)


def config(**learn):
    debug = PRESETS["debug"]
    vision = replace(debug.model.vision, image_size=16)
    return replace(
        debug,
        model=replace(debug.model, vision=vision),
        env=TABLE,
        learn=Learn(
            iterations=4, num_envs=2, rollout_steps=6, workers=1, critic_warmup=1, normalise_state=True, **learn
        ),
        ppo=PPO(epochs=2, minibatch=6, kl_coef=0.1),
        evaluation=Evaluation(every=2, episodes=2, num_envs=2, workers=1),
    )


def learn_all(cfg, run):
    """Reinforcement of a fresh policy with frozen encoders."""
    torch.set_num_threads(1)
    policy = open_policy(cfg.model, cfg.env, seed=cfg.seed)
    policy.freeze_encoders()
    reinforce(policy, cfg, run)


def outcome(folder, step):
    """Weights to the last bit, and all metrics but the seconds."""
    lines = [json.loads(line) for line in (folder / "metrics.jsonl").read_text().splitlines()]
    told = [{name: value for name, value in line.items() if not name.startswith("time/")} for line in lines]
    saved = load_file(folder / f"checkpoint-{step}/model.safetensors")
    return {name: tensor.numpy().tobytes() for name, tensor in saved.items()}, told


@pytest.mark.slow
@pytest.mark.parametrize("head", ["gaussian", "flow"])
def test_killed_and_resumed_it_ends_as_if_it_had_not_been(train, killed_at, tmp_path, kept_in, head):
    cfg = config(curriculum_start_fraction=0.5, curriculum_iterations=2)
    cfg = replace(cfg, model=replace(cfg.model, action_head=head))
    train(learn_all, cfg, "unbroken")
    killed_at(3, lambda: train(learn_all, cfg, "broken"))
    assert [path.name for path in tmp_path.glob("broken/checkpoint-*")] == ["checkpoint-2"]
    train(learn_all, cfg, "broken", resume=True)
    weights, told = outcome(tmp_path / "broken", 4)
    assert (weights, told) == outcome(tmp_path / "unbroken", 4)
    assert kept_in(tmp_path / "broken") == kept_in(tmp_path / "unbroken")
    assert kept_in(tmp_path / "broken").keys() == {"step-000002", "step-000004"}
    # the critic alone in the first update, then both; the encoders never
    assert ["loss/policy" in line for line in told] == [False, True, True, True]
    before = open_policy(cfg.model, cfg.env, seed=cfg.seed).state_dict()
    moved = {name for name, tensor in before.items() if tensor.numpy().tobytes() != weights[name]}
    assert {name.split(".")[0] for name in moved} >= {"fusion", "head", "critic", "state_mean"}
    assert not [name for name in moved if name.startswith(("vision_encoder.", "text_encoder."))]


def test_an_update_shorter_than_an_episode_is_refused(train):
    with pytest.raises(ConfigError, match=r"learn\.rollout_steps = 6: episodes last up to 7"):
        train(learn_all, replace(config(), env=replace(TABLE, max_steps=7)))


def test_plans_differ_by_update_row_and_episode_and_nothing_else():
    cfg = config()
    seeds = [plan_iteration(cfg, step)(row, episode)[0] for step in (1, 2) for row in (0, 1) for episode in (0, 1)]
    assert len(set(seeds)) == 8
    assert plan_iteration(cfg, 2)(1, 0) == plan_iteration(config(), 2)(1, 0)
    assert plan_iteration(replace(cfg, seed=1), 2)(1, 0) != plan_iteration(cfg, 2)(1, 0)


def test_starts_grow_from_the_easiest_to_all():
    learn = Learn(curriculum_start_fraction=0.25, curriculum_iterations=3)
    assert [start_fraction(learn, step) for step in range(1, 7)] == [0.25, 0.5, 0.75, 1.0, 1.0, 1.0]
    assert start_fraction(Learn(), 1) == 1.0
    env = EnvConfig(task="pick_place")

    def way(seed):
        start = draw_start(seed, "pick_place", "none", things=1)
        spot = start.objects[0][:2]
        return np.linalg.norm(start.tool[:2] - spot) + np.linalg.norm(start.targets[0] - spot)

    easy = [way(easy_start(env, seed, 4)) for seed in range(20)]
    plain = [way(derive(seed, "start", 0)) for seed in range(20)]
    assert all(easier <= any_one for easier, any_one in zip(easy, plain))
    assert np.mean(easy) < 0.85 * np.mean(plain)
    cfg = replace(config(curriculum_start_fraction=0.5), env=env)
    assert set(plan_iteration(cfg, 1)(0, 0)[1]) == {"start_seed"}
    assert plan_iteration(cfg, 30)(0, 0)[1] == {}
