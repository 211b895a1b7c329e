import gymnasium
import numpy as np
import pytest
from gymnasium import spaces

from lookact.envs.control.classic import Classic
from lookact.envs.control.fixed_horizon import FixedHorizon, FixedStart, horizon_of, make_control_env
from lookact.envs.control.metaworld import MetaWorld
from lookact.errors import ConfigError, EnvError


class Countdown(gymnasium.Env):
    """Ends itself after as many steps as it was told; actions are speeds from 0 to 10."""

    observation_space = spaces.Box(-np.inf, np.inf, (2,), np.float32)
    action_space = spaces.Box(0.0, 10.0, (1,), np.float32)

    def __init__(self, steps, *, by_truncation=False):
        self.left, self.by_truncation, self.seen = steps, by_truncation, []

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        return np.zeros(2), {}

    def step(self, action):
        self.seen.append(float(action[0]))
        self.left -= 1
        over = self.left <= 0
        return np.zeros(2), 1.0, over and not self.by_truncation, over and self.by_truncation, {"success": over}

    def render(self):
        return np.full((8, 8, 3), 9, np.uint8)


def walk(env, steps, action=0.0):
    env.reset(seed=0)
    return [env.step(np.full(env.action_space.shape, action, np.float32)) for _ in range(steps)]


@pytest.mark.parametrize("by_truncation", [False, True])
def test_an_env_that_ends_itself_is_refused_with_the_reason(by_truncation):
    env = FixedHorizon(Countdown(3, by_truncation=by_truncation), horizon=5)
    with pytest.raises(EnvError, match="after 3 of 5 decisions: a learned reward needs a fixed horizon"):
        walk(env, 5)


def test_an_env_that_goes_on_is_cut_at_the_horizon():
    results = walk(FixedHorizon(Countdown(99), horizon=5, action_repeat=2), 5)
    assert [result[2:4] for result in results] == [(False, False)] * 4 + [(False, True)]
    # an environment may be truncated at the very horizon
    assert walk(FixedHorizon(Countdown(5, by_truncation=True), horizon=5), 5)[-1][3]


def test_actions_are_scaled_to_the_envs_own():
    inner = Countdown(99)
    env = FixedHorizon(inner, horizon=9)
    for action in (-1.0, 0.0, 1.0, 7.0):
        walk(env, 1, action)
    assert inner.seen == [0.0, 5.0, 10.0, 10.0]


def test_pictures_come_in_the_size_asked_for():
    assert FixedHorizon(Countdown(9), horizon=5, image_size=16).render().shape == (16, 16, 3)


def test_envs_by_name():
    assert isinstance(make_control_env("Pendulum-v1"), Classic)
    drawer = make_control_env("drawer-close-v2", action_repeat=5, crop=(0.0, 0.0, 0.5, 0.5))
    assert isinstance(drawer, MetaWorld)
    assert (drawer.task, drawer.horizon) == ("drawer-close-v3", 100)


def test_the_table_goes_on_after_success_and_rewards_progress():
    env = make_control_env("tabletop/reach", horizon=4, image_size=32)
    results = walk(env, 4)
    assert results[-1][3]
    assert results[-1][1] == env.inner.progress
    assert env.inner.terminate_on_success is False
    assert env.render().shape == (32, 32, 3)
    env.close()


@pytest.mark.parametrize(
    ("task", "said"),
    [
        ("tabletop/juggle", "tabletop/reach"),
        ("Nowhere-v0", "unknown task Nowhere-v0"),
        ("CliffWalking-v1", "make it a Box"),
    ],
)
def test_what_does_not_fit_is_refused(task, said):
    with pytest.raises(ConfigError, match=said):
        make_control_env(task)


def test_a_fixed_start_is_the_same_for_every_seed_and_all_else_is_the_inner_envs():
    inner = Classic("Pendulum-v1", horizon=7)
    env = FixedStart(inner, seed=3)
    starts = [env.reset(seed=seed)[0] for seed in (None, 3, 4)]
    assert all((start == inner.reset(seed=3)[0]).all() for start in starts)
    assert (inner.reset(seed=4)[0] != starts[0]).any()
    assert horizon_of(env) == 7
    assert env.action_space == inner.action_space
    # the same action from the same start
    env.reset(seed=9)
    mine = env.step(np.ones(1, np.float32))
    inner.reset(seed=3)
    theirs = inner.step(np.ones(1, np.float32))
    assert (mine[0] == theirs[0]).all()
    assert mine[1:4] == theirs[1:4]
