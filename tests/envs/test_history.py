import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from lookact.envs.history import PairHistory
from lookact.errors import ConfigError, EnvError


def frame(number: int) -> np.ndarray:
    return np.full((2, 2, 3), number, np.uint8)


def action(number: float) -> np.ndarray:
    return np.array([number, -number], np.float32)


def filled_history(steps: int, **settings) -> PairHistory:
    """Frame k leads by action k + 0.5 to frame k + 1."""
    history = PairHistory(4, (2, 2, 3), 2, **settings)
    history.reset(frame(0))
    for step in range(steps):
        history.push(action(step + 0.5), frame(step + 1))
    return history


def test_each_frame_stands_before_its_action():
    window = filled_history(10).window()
    assert window.images[:, 0, 0, 0].tolist() == [6, 7, 8, 9]
    assert window.actions[:, 0].tolist() == [6.5, 7.5, 8.5, 9.5]
    assert window.filled.all()


def test_with_an_action_the_present_frame_is_the_newest():
    window = filled_history(10).window(action(99))
    assert window.images[:, 0, 0, 0].tolist() == [7, 8, 9, 10]
    assert window.actions[:, 0].tolist() == [7.5, 8.5, 9.5, 99]


def test_asking_with_an_action_changes_nothing():
    history = filled_history(10)
    history.window(action(99))
    history.push(action(10.5), frame(11))
    assert history.window().actions[:, 0].tolist() == [7.5, 8.5, 9.5, 10.5]


def test_before_the_first_step_all_is_padding():
    window = filled_history(0).window()
    assert not window.filled.any()
    assert not window.actions.any()
    started = PairHistory(4, (2, 2, 3), 2)
    started.reset(frame(7))
    assert started.window().images.tolist() == np.full((4, 2, 2, 3), 7).tolist()


def test_padding_with_the_first_frame_or_zeros():
    for padding, value in (("first", 5), ("zeros", 0)):
        history = PairHistory(3, (2, 2, 3), 2, padding=padding)
        history.reset(frame(5))
        history.push(action(1), frame(6))
        window = history.window()
        assert window.images[:, 0, 0, 0].tolist() == [value, value, 5]
        assert window.actions[:, 0].tolist() == [0, 0, 1]
        assert window.filled.tolist() == [False, False, True]


def test_a_new_episode_forgets_the_last():
    history = filled_history(10)
    history.reset(frame(50))
    history.push(action(1), frame(51))
    window = history.window()
    assert window.images[:, 0, 0, 0].tolist() == [50, 50, 50, 50]
    assert window.actions[:, 0].tolist() == [0, 0, 0, 1]


@given(steps=st.integers(0, 40), stride=st.integers(1, 5), length=st.integers(1, 6))
def test_pairs_never_come_apart(steps, stride, length):
    history = PairHistory(length, (2, 2, 3), 2, stride=stride)
    history.reset(frame(0))
    for step in range(steps):
        history.push(action(step + 0.5), frame(step + 1))
    window = history.window()
    newest = steps - 1 - stride * np.arange(length)[::-1]
    assert len(window.images) == len(window.actions) == length
    assert window.filled.tolist() == (newest >= 0).tolist()
    assert window.images[:, 0, 0, 0].tolist() == np.maximum(newest, 0).tolist()
    assert window.actions[:, 0].tolist() == np.where(newest >= 0, newest + 0.5, 0).tolist()


def test_state_continues_where_it_was_taken():
    history, other = filled_history(7), PairHistory(4, (2, 2, 3), 2)
    other.load_state_dict(history.state_dict())
    for each in (history, other):
        each.push(action(7.5), frame(8))
    assert np.array_equal(history.window().images, other.window().images)
    assert np.array_equal(history.window().actions, other.window().actions)


def test_wrong_shapes_and_orders_are_refused():
    history = PairHistory(4, (2, 2, 3), 2)
    with pytest.raises(EnvError, match="call reset"):
        history.push(action(0), frame(0))
    with pytest.raises(EnvError, match="call reset"):
        history.window()
    history.reset(frame(0))
    with pytest.raises(EnvError, match=r"\(2,\) was given \(3,\)"):
        history.push(np.zeros(3, np.float32), frame(1))
    with pytest.raises(EnvError, match=r"was given \(4, 4, 3\)"):
        history.push(action(0), np.zeros((4, 4, 3), np.uint8))
    with pytest.raises(ConfigError, match="stride 0"):
        PairHistory(4, (2, 2, 3), 2, stride=0)
