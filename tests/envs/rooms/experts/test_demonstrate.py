import gymnasium
import numpy as np
import pytest

from lookact.envs.rooms.experts.demonstrate import demonstrate, random_answer, random_move, random_reply
from lookact.envs.rooms.motion import Limits
from lookact.envs.rooms.navigation import Navigation
from lookact.envs.rooms.spatial_vqa import SpatialVQA
from lookact.errors import EnvError
from lookact.text.actions import parse_action, parse_move_or_answer, reasoning_of


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


def test_moves_cover_the_limits_evenly():
    rng = np.random.default_rng(0)
    moves = [random_move(rng, Limits(rotation_degrees=30, forward_meters=0.5)) for _ in range(600)]
    pairs = {(move.rotation_degrees, move.forward_meters) for move in moves}
    assert pairs == {(turn, walk) for turn in (-30, -15, 0, 15, 30) for walk in (0.0, 0.25, 0.5)}


def test_answers_are_letters_or_numbers():
    rng = np.random.default_rng(0)
    letters = {parse_move_or_answer(random_answer(rng, ("A. left", "B. right")))["answer"] for _ in range(30)}
    assert letters == {"A", "B"}
    assert float(parse_move_or_answer(random_answer(rng, None))["answer"]) > 0


def test_questions_are_always_answered_by_the_last_turn():
    env = SpatialVQA(image_size=8)
    for seed in range(5):
        env.reset(seed=seed)
        rng, over = np.random.default_rng(seed), False
        while not over:
            _, _, over, _, info = env.step(random_reply(env, rng))
            assert info["valid_action"]
        assert info["answered"]
