import gymnasium
import numpy as np
import pytest

from lookact.envs.rooms.experts.demonstrate import demonstrate
from lookact.envs.rooms.navigation import Navigation
from lookact.envs.rooms.spatial_vqa import SpatialVQA
from lookact.errors import EnvError
from lookact.text.actions import parse_action, reasoning_of


def test_without_noise_the_label_is_what_is_done():
    turns = demonstrate(Navigation(), 5)
    assert all(turn.label == turn.executed for turn in turns)
    assert [turn.info["turn"] for turn in turns] == list(range(1, len(turns) + 1))
    assert not any(turn.terminated or turn.truncated for turn in turns[:-1])
    assert turns[-1].terminated or turns[-1].truncated


def test_noise_changes_what_is_done_and_keeps_the_label():
    turns = demonstrate(Navigation(), 5, noise=1.0)
    assert len(turns) > 1
    assert any(parse_action(turn.label) != parse_action(turn.executed) for turn in turns)
    assert all(reasoning_of(turn.label) == reasoning_of(turn.executed) for turn in turns)


def test_answers_are_never_noise():
    for seed in range(4):
        assert '"answer"' in demonstrate(SpatialVQA(image_size=48), seed, noise=1.0)[-1].executed


def test_a_wrapped_environment_shows_the_same():
    plain = demonstrate(Navigation(), 2, {"scene_seed": 8})
    wrapped = demonstrate(gymnasium.make("lookact/Navigation-v0"), 2, {"scene_seed": 8})
    assert [turn.label for turn in plain] == [turn.label for turn in wrapped]
    assert np.array_equal(plain[-1].observation.images["head"], wrapped[-1].observation.images["head"])


def test_other_environments_have_no_expert():
    with pytest.raises(EnvError, match="CartPole"):
        demonstrate(gymnasium.make("CartPole-v1"), 0)
