import numpy as np
import pytest

from lookact.envs.control.deformables import BEADS, SPACING, Deformable, bent_rope
from lookact.envs.control.fixed_horizon import horizon_of, make_control_env
from lookact.envs.control.scripted_experts import controller_of
from lookact.errors import ConfigError
from lookact.judges.goals import goal_of

TASKS = ("deformable/rope", "deformable/cloth")


def played(task, act, seed=3, horizon=40):
    """The last state, the rewards, and whether the task was done, of an episode."""
    env = make_control_env(task, horizon=horizon)
    state, _ = env.reset(seed=seed)
    rewards, success = [], False
    for _ in range(horizon_of(env)):
        state, reward, terminated, truncated, info = env.step(act(state))
        rewards.append(reward)
        success = success or info["success"]
        assert not terminated
        assert np.isfinite(state).all()
    assert truncated
    return state, rewards, success


@pytest.mark.parametrize("task", TASKS)
def test_the_expert_succeeds_and_hands_that_rest_do_not(task):
    size = make_control_env(task, horizon=1).action_space.shape
    _, expert, done = played(task, controller_of(task))
    _, resting, begun = played(task, lambda state: np.zeros(size, np.float32), horizon=10)
    assert done
    assert max(expert) > 0.9
    assert not begun
    # what lies on the table stays there
    assert np.ptp(resting) < 0.05


@pytest.mark.parametrize("task", TASKS)
def test_a_start_comes_again_from_its_seed_and_others_differ(task):
    env = Deformable(task)
    first, again, other = (env.reset(seed=seed)[0] for seed in (1, 1, 2))
    assert np.array_equal(first, again)
    assert np.abs(first - other).max() > 0.01


@pytest.mark.parametrize("bend", [2.5, -5.5])
def test_a_bent_rope_keeps_its_length(bend):
    places = bent_rope(bend)
    assert np.linalg.norm(np.diff(places, axis=0), axis=1) == pytest.approx([SPACING] * (BEADS - 1))
    assert places[0] == pytest.approx(-places[-1])
    assert np.linalg.norm(places[-1] - places[0]) < 0.8 * SPACING * (BEADS - 1)


def test_hands_cannot_tear_the_rope():
    state, rewards, _ = played("deformable/rope", controller_of("deformable/rope"), horizon=60)
    lengths = np.linalg.norm(np.diff(state.reshape(-1, 3), axis=0), axis=1)
    assert 0.95 < rewards[-1] <= 1.0
    assert lengths.max() < 1.1 * SPACING
    ends = np.linalg.norm(state[:3] - state[-3:])
    assert rewards[-1] == pytest.approx(ends / lengths.sum(), rel=1e-4)


@pytest.mark.parametrize("task", TASKS)
def test_a_picture_shows_what_has_happened(task):
    env = Deformable(task, image_size=48)
    env.reset(seed=0)
    before = env.render()
    for _ in range(10):
        env.step(controller_of(task)(env.state))
    after = env.render()
    env.close()
    assert before.shape == (48, 48, 3)
    assert (np.abs(before.astype(int) - after).max(axis=-1) > 60).sum() > 10


def test_the_goal_is_known_and_another_thing_is_refused():
    assert goal_of("deformable/rope") == "to pull the orange rope straight"
    with pytest.raises(ConfigError, match="deformable/cloth"):
        make_control_env("deformable/jelly")
