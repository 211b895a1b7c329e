import math

import gymnasium
import numpy as np
import pytest
from gymnasium.utils.env_checker import check_env

from lookact.envs.control.classic import TASKS, Classic, LineDrawing, balance, climb, wrap_angle
from lookact.errors import ConfigError, EnvError


@pytest.mark.parametrize("task", TASKS)
def test_keeps_gymnasiums_rules(task):
    check_env(Classic(task), skip_render_check=True)


@pytest.mark.parametrize("task", TASKS)
def test_every_episode_has_the_same_length_and_never_terminates(task):
    env = Classic(task, horizon=7)
    for seed in range(3):
        env.reset(seed=seed)
        ends = [env.step(np.ones(1))[2:4] for _ in range(7)]
        assert ends == [(False, False)] * 6 + [(False, True)]
    with pytest.raises(EnvError, match="call reset"):
        env.step(np.ones(1))


def test_the_pendulum_is_gymnasiums():
    theirs, ours = gymnasium.make("Pendulum-v1").unwrapped, Classic("Pendulum-v1")
    theirs.reset(seed=0)
    ours.reset(seed=0)
    ours.physics = np.array(theirs.state, dtype=np.float64)
    for action in np.random.default_rng(0).uniform(-1, 1, (100, 1)):
        state, reward, *_ = theirs.step(2 * action)
        our_state, our_reward, *_ = ours.step(action)
        assert np.allclose(our_state, state, atol=1e-4)
        assert our_reward == pytest.approx(reward, abs=1e-4)


def test_the_cart_moves_as_gymnasiums_does():
    theirs = gymnasium.make("CartPole-v1").unwrapped
    theirs.reset(seed=0)
    physics = np.array(theirs.state, dtype=np.float64)
    for push in (1, 1, 0, 1, 0, 0):
        state = theirs.step(push)[0]
        physics = balance(physics, 2.0 * push - 1.0)
        assert np.allclose(physics, state, atol=1e-5)


def test_the_car_moves_as_gymnasiums_does_and_stays_at_the_flag():
    theirs = gymnasium.make("MountainCarContinuous-v0").unwrapped
    theirs.reset(seed=0)
    physics = np.array(theirs.state, dtype=np.float64)
    for force in np.random.default_rng(1).uniform(-1, 1, 50):
        state = theirs.step(np.array([force]))[0]
        physics = climb(physics, force)
        assert np.allclose(physics, state, atol=1e-5)
    assert climb(np.array([0.46, 0.05]), -1.0).tolist() == [0.45, 0.0]


def test_a_fallen_pole_goes_on_and_the_track_has_ends():
    physics = np.array([0.0, 0.0, 3.0, 0.0])
    for _ in range(300):
        physics = balance(physics, 1.0)
        assert abs(physics[0]) <= 2.4
        assert abs(physics[2]) <= math.pi
    assert physics[0] == 2.4


def test_a_decision_of_two_steps_has_their_mean_reward():
    one, two = Classic("Pendulum-v1"), Classic("Pendulum-v1", action_repeat=2)
    assert two.horizon == 100
    one.reset(seed=5)
    two.reset(seed=5)
    rewards = [one.step(np.array([0.3]))[1] for _ in range(2)]
    state, reward, *_ = two.step(np.array([0.3]))
    assert reward == pytest.approx(np.mean(rewards))
    assert np.array_equal(state, one._state())


@pytest.mark.parametrize("task", TASKS)
def test_pictures_show_the_physics(task):
    env = Classic(task, image_size=40)
    env.reset(seed=1)
    before = env.render()
    for _ in range(10):
        env.step(np.ones(1))
    assert before.shape == (40, 40, 3)
    assert before.dtype == np.uint8
    assert not np.array_equal(before, env.render())


def test_an_upright_pendulum_is_drawn_in_the_upper_half():
    env = Classic("Pendulum-v1")
    env.physics = np.zeros(2)
    upper, lower = np.split(255 - env.render().astype(int), 2)
    assert upper.sum() > 5 * lower.sum()


def test_wrapped_angles():
    assert wrap_angle(3 * math.pi / 2) == pytest.approx(-math.pi / 2)
    assert wrap_angle(-0.1) == pytest.approx(-0.1)


def test_an_unknown_task_is_refused():
    with pytest.raises(ConfigError, match="Pendulum-v1"):
        Classic("Acrobot-v1")


RED = (200, 0, 0)


def test_a_disc_covers_its_area():
    drawing = LineDrawing(100)
    drawing.line((0.0, 0.0), (0.0, 0.0), width=0.5, colour=(0, 0, 0))
    covered = 1.0 - drawing.pixels[..., 0] / 255
    # radius 0.5 of a side of 2
    assert abs(covered.mean() - np.pi * 0.25 / 4) < 0.002


def test_up_is_up_and_right_is_right():
    drawing = LineDrawing(50)
    drawing.line((0.8, 0.8), (0.8, 0.8), width=0.1, colour=RED)
    assert tuple(drawing.pixels[5, 44]) == RED
    assert (drawing.pixels[25:, :25] == 255).all()


def test_a_line_is_as_wide_as_told():
    drawing = LineDrawing(64)
    drawing.line((-2.0, 0.0), (2.0, 0.0), width=0.25, colour=(0, 0, 0))
    assert (255 - drawing.pixels[:, 30, 0].astype(int)).sum() / 255 * 2 / 64 == np.float64(0.5)
