import numpy as np
import pytest

from lookact.envs.tabletop.env import Tabletop
from lookact.envs.tabletop.experts import expert_action, record

EPISODES = 50


def success_rate(env: Tabletop, act, episodes: int) -> float:
    successes = 0
    for seed in range(episodes):
        env.reset(seed=seed)
        over = False
        while not over:
            _, _, terminated, truncated, info = env.step(act(env))
            over = terminated or truncated
        successes += info["success"]
    return successes / episodes


@pytest.mark.slow
@pytest.mark.parametrize("control", ["ee_delta", "delta_qpos"])
@pytest.mark.parametrize("task", ["reach", "push", "pick_place"])
def test_the_expert_solves_its_task(task, control):
    assert success_rate(Tabletop(cameras=(), task=task, control=control), expert_action, EPISODES) >= 0.95


@pytest.mark.slow
@pytest.mark.parametrize("shift", ["vision", "semantics", "execution"])
def test_the_expert_solves_pick_and_place_out_of_distribution(shift):
    assert success_rate(Tabletop(cameras=(), shift=shift, distractors=1), expert_action, 20) >= 0.95


def test_the_expert_picks_and_places():
    assert success_rate(Tabletop(cameras=()), expert_action, 8) == 1.0


def test_random_actions_hardly_ever_do():
    rng = np.random.default_rng(0)
    for task in ("push", "pick_place"):
        env = Tabletop(cameras=(), task=task)
        assert success_rate(env, lambda env: env.action_space.low + 2 * rng.random(4, np.float32), 12) <= 0.1


def test_a_recording_holds_the_experts_actions_also_where_noise_was_executed():
    env = Tabletop(cameras=())
    clean, noisy, again = (record(env, seed=3, noise=noise) for noise in (0.0, 0.4, 0.4))
    assert clean.info["success"]
    assert len(clean.shown) == len(clean.actions)
    assert np.array_equal(clean.actions[0], noisy.actions[0])
    assert not np.array_equal(clean.shown[1]["state"], noisy.shown[1]["state"])
    assert np.array_equal(noisy.actions, again.actions)
