"""Questions are put as VSI-Bench puts them, word for word; paraphrases name the same things in the same order."""

import re
import string

import pytest

from lookact.envs.rooms.generate import RoomStyle, generate_room
from lookact.envs.rooms.questions import ALL, LABELS, ask, brief
from lookact.envs.rooms.wordings import WORDINGS
from lookact.text.answers import QUESTION_TYPES

# the published rows' own text, with what they speak of left open
OFFICIAL = {
    "object_counting": r"How many X\(s\) are in this room\?",
    "object_abs_distance": "Measuring from the closest point of each object, what is the distance between the X and "
    r"the X \(in meters\)\?",
    "object_size_estimation": r"What is the length of the longest dimension \(length, width, or height\) of the X, "
    r"measured in centimeters\?",
    "room_size_estimation": r"What is the size of this room \(in square meters\)\? \nIf multiple rooms are shown, "
    r"estimate the size of the combined space\.",
    "object_rel_distance": r"Measuring from the closest point of each object, which of these objects \(X, X, X, X\) is "
    r"the closest to the X\?",
    "object_rel_direction_easy": "If I am standing by the X and facing the (X), is the X to the left or "
    r"the right of the \1\?",
    "object_rel_direction_medium": "If I am standing by the X and facing the X, is the X to my left, right, or back"
    r"\?\nAn object is to my back if I would have to turn at least 135 degrees in order to face it\.",
    "object_rel_direction_hard": "If I am standing by the X and facing the X, is the X to my front-left, front-right, "
    r"back-left, or back-right\?\nThe directions refer to the quadrants of a Cartesian plane \(if I am "
    r"standing at the origin and facing along the positive y-axis\)\.",
    "obj_appearance_order": "What will be the first-time appearance order of the following categories in the video: "
    r"X, X, X, X\?",
    "route_planning": r"You are a robot beginning at the X and facing the X\. You want to navigate to the (X)\. You "
    r"will perform the following actions \(Note: for each \[please fill in\], choose either 'turn back,' 'turn left,' "
    r"or 'turn right\.'\): (?:\d\. (?:\[please fill in\]|Go forward until the X) )+\d\. Go forward until the \1\. "
    r"You have reached the final destination\.",
}


@pytest.fixture(scope="module")
def rooms():
    return [generate_room(seed, RoomStyle(objects=(8, 10), side=(6.0, 7.0))) for seed in range(4)]


def test_every_type_is_worded_as_the_benchmark_words_it(rooms):
    seen = set()
    for room in rooms:
        for question in ask(room, seed=3, per_type=2):
            assert re.fullmatch(OFFICIAL[question.question_type].replace("X", "[a-z ]+"), question.question), (
                question.question
            )
            seen.add(question.question_type)
    assert seen == set(OFFICIAL) == set(ALL) == set(QUESTION_TYPES)


def test_paraphrases_say_the_same_in_other_words(rooms):
    varied = 0
    for room in rooms:
        for plain, other in zip(ask(room, seed=3, per_type=2), ask(room, seed=3, per_type=2, paraphrase=True)):
            assert (plain.id, plain.ground_truth, plain.options) == (other.id, other.ground_truth, other.options)
            named = [list(dict.fromkeys(LABELS.findall(question.question))) for question in (plain, other)]
            assert named[0] == named[1]
            if plain.question_type not in ("route_planning", "obj_appearance_order"):
                assert brief(plain) == brief(other)
            varied += plain.question != other.question
    assert varied > 10


@pytest.mark.parametrize("kind", WORDINGS)
def test_wordings_of_a_type_speak_of_the_same_things(kind):
    fields = [{name for _, name, _, _ in string.Formatter().parse(text) if name} for text in WORDINGS[kind]]
    assert len(fields) >= 2
    assert all(names == fields[0] for names in fields)
