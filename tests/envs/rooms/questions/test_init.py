"""Ten thousand questions as a set: complete, distinct, repeatable, and of no use to a constant guess."""

from collections import Counter

import numpy as np
import pytest

from lookact.envs.rooms.generate import RoomStyle, generate_room
from lookact.envs.rooms.questions import ALL, BRIEF, ask, brief
from lookact.envs.rooms.vsi import Question, format_prompt
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


@pytest.mark.parametrize(
    ("kind", "text", "options", "expected"),
    [
        ("object_counting", "Counting every tv monitor in this room, how many are there?", None,
         "How many of the tv monitor?"),
        ("object_abs_distance", "From the closest point of the bed to the closest point of the sofa?", None,
         "How far is the bed? From the sofa?"),
        ("object_rel_distance", "Which of these (bed, sofa, sink, oven) is closest to the table? Measure",
         ("A. bed", "B. sofa"), "What is nearest to the table? A bed. B sofa."),
        ("object_rel_direction_easy", "I am standing by the bed and facing the sofa. Is the sink on my left or on my",
         ("A. left", "B. right"), "By the bed. Facing the sofa. Where is the sink? A left. B right."),
    ],
)  # fmt: skip
def test_each_sentence_holds_one_thing(kind, text, options, expected):
    assert brief(Question(0, "mine", "s", kind, text, "A", options)) == expected


def test_generated_questions_of_every_brief_type_become_shorter():
    scene = generate_room(4, RoomStyle(objects=(7, 9), side=(6.0, 7.0)))
    asked = ask(scene, seed=0, types=tuple(BRIEF))
    assert len(asked) >= 6
    assert all(len(brief(question)) < len(format_prompt(question)) for question in asked)


def test_what_it_cannot_shorten_stays():
    strange = Question(0, "mine", "s", "object_counting", "How many unicorns?", "1")
    route = Question(0, "mine", "s", "route_planning", "You are at the bed.", "A", ("A. Turn Left",))
    assert [brief(question) for question in (strange, route)] == [format_prompt(strange), format_prompt(route)]
