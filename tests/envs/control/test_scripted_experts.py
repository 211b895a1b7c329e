import numpy as np
import pytest

from lookact.envs.control.fixed_horizon import make_control_env
from lookact.envs.control.scripted_experts import NoisyExpert, controller_of
from lookact.seeding import numpy_rng


def run_episode(task, expert, seed, **options):
    """The rewards of one episode, and whether it ended well."""
    env = make_control_env(task, **options)
    state, info = env.reset(seed=seed)
    rewards = []
    for _ in range(env.horizon):
        state, reward, *_, info = env.step(expert.act(state))
        rewards.append(reward)
    return rewards, info["success"]


def noisy_expert(task, random_prob, size, seed=0):
    return NoisyExpert(controller_of(task), random_prob=random_prob, action_size=size, rng=numpy_rng(seed, "pupil"))


@pytest.mark.parametrize("seed", range(5))
def test_the_pendulum_is_swung_up_and_held(seed):
    rewards, success = run_episode("Pendulum-v1", noisy_expert("Pendulum-v1", 0.0, 1), seed)
    assert success
    # upright and still costs nothing
    assert np.mean(rewards[-20:]) > -0.1


def test_a_metaworld_task_is_solved_and_spoilt_by_random_actions():
    task, options = "button-press-topdown-v3", {"horizon": 60, "action_repeat": 2}
    skilled, _ = run_episode(task, noisy_expert(task, 0.0, 4), 0, **options)
    clumsy, _ = run_episode(task, noisy_expert(task, 1.0, 4), 0, **options)
    assert skilled[-1] > 5.0 > max(clumsy)


def test_nobody_knows_how_to_solve_another_task():
    assert controller_of("MountainCarContinuous-v0") is None
    expert = noisy_expert("MountainCarContinuous-v0", 0.0, 1)
    assert expert.random_prob == 1.0
    actions = [float(expert.act(np.zeros(2))[0]) for _ in range(50)]
    # one random action lasts for a while
    assert 2 < len(set(actions)) < 30


def test_the_same_seed_stumbles_alike():
    one, two = noisy_expert("Pendulum-v1", 0.5, 1, seed=3), noisy_expert("Pendulum-v1", 0.5, 1, seed=3)
    state = np.array([-1.0, 0.1, 0.5])
    for _ in range(30):
        assert np.array_equal(one.act(state), two.act(state))
