"""Ten thousand questions as a set: complete, distinct, repeatable, and of no use to a constant guess."""

from collections import Counter

import numpy as np
import pytest

from lookact.envs.rooms.generate import RoomStyle, generate_room
from lookact.envs.rooms.questions import ALL, ask
from lookact.errors import ConfigError
from lookact.text.answers import NUMERIC_TYPES, QUESTION_TYPES

ROOMY = RoomStyle(objects=(9, 14), side=(5.0, 8.0), distinct=False)


@pytest.mark.slow
def test_there_are_many_of_every_type(asked) -> None:
    assert set(asked) == set(QUESTION_TYPES) == set(ALL)
    assert sum(map(len, asked.values())) >= 10_000
    assert min(map(len, asked.values())) >= 60


@pytest.mark.slow
def test_no_constant_guess_pays(asked) -> None:
    chosen = [question for pairs in asked.values() for _, question in pairs if question.options is not None]
    chance = np.mean([1 / len(question.options) for question in chosen])
    letters = Counter(question.ground_truth for question in chosen)
    assert max(letters.values()) / len(chosen) < chance + 0.02
    for question in chosen:
        assert [option[:3] for option in question.options] == [
            f"{letter}. " for letter in "ABCD"[: len(question.options)]
        ]


@pytest.mark.slow
def test_no_constant_direction_pays(asked) -> None:
    for name, options in (("easy", 2), ("medium", 3), ("hard", 4)):
        words = Counter(
            next(option[3:] for option in question.options if option[0] == question.ground_truth)
            for _, question in asked[f"object_rel_direction_{name}"]
        )
        assert max(words.values()) / words.total() < 1 / options + 0.02


@pytest.mark.slow
def test_numbers_vary(asked) -> None:
    for name in NUMERIC_TYPES:
        numbers = Counter(question.ground_truth for _, question in asked[name])
        # most kinds that come in numbers come in twos
        assert max(numbers.values()) / numbers.total() < (0.7 if name == "object_counting" else 0.1)


@pytest.mark.slow
def test_rows_are_complete_and_distinct(asked) -> None:
    pairs = [pair for group in asked.values() for pair in group]
    assert len({question.id for _, question in pairs}) == len(pairs)
    assert len({(question.scene_name, question.question_type, question.question) for _, question in pairs}) == len(
        pairs
    )
    for scene, question in pairs:
        assert (question.dataset, question.scene_name) == ("generated", scene.id)
        assert 0 <= question.id < 2**53


def test_the_same_seed_asks_the_same() -> None:
    scene = generate_room(11, ROOMY)
    assert ask(scene, seed=1) == ask(scene, seed=1)
    assert ask(scene, seed=1) != ask(scene, seed=2)
    # a type's questions don't depend on which others are asked
    alone = ask(scene, seed=1, types=["object_rel_distance"], per_type=2)
    assert [q for q in ask(scene, seed=1, per_type=2) if q.question_type == "object_rel_distance"] == alone


def test_unknown_types_are_refused() -> None:
    with pytest.raises(ConfigError, match="question type 'smell' is unknown"):
        ask(generate_room(0), seed=0, types=["smell"])
