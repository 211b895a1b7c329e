import pytest

from lookact.envs.rooms.generate import RoomStyle, generate_room
from lookact.envs.rooms.questions import ask
from lookact.envs.rooms.questions.brief import BRIEF, brief
from lookact.envs.rooms.vsi import Question, format_prompt


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
