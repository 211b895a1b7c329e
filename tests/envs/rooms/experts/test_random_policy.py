import numpy as np

from lookact.envs.rooms.experts.random_policy import random_answer, random_move, random_reply
from lookact.envs.rooms.motion import Limits
from lookact.envs.rooms.spatial_vqa import SpatialVQA
from lookact.text.actions import parse_move_or_answer


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
