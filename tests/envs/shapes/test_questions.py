import json

import numpy as np
import pytest

from lookact.envs.rooms.pretraining_images import LabelledImage
from lookact.envs.shapes import questions
from lookact.envs.shapes.scene import ShapeScene, Thing

NOTHING = LabelledImage(np.zeros((96, 96, 3), np.uint8), np.zeros((6, 6, 13), np.float32), np.zeros((6, 6), np.float32))
SCENE = ShapeScene((Thing("red", "square", 0.1, 0.5), Thing("blue", "circle", 0.9, 0.6)), NOTHING)


def replies(kind, scene=SCENE):
    rng = np.random.default_rng(0)
    asked = [kind(scene, rng) for _ in range(60)]
    return {question: json.loads(reply) for question, reply in (qa for qa in asked if qa)}


def test_places_heights_and_directions():
    assert replies(questions.place) == {
        "Where is the red square?": {"action": "left"},
        "Where is the blue circle?": {"action": "right"},
    }
    assert set(map(str, replies(questions.height).values())) == {"{'action': 'middle'}"}
    assert replies(questions.direction) == {
        "Go from the red square to the blue circle.": {"action": "right"},
        "Go from the blue circle to the red square.": {"action": "left"},
    }


def test_colours_shapes_counts_and_presence():
    assert replies(questions.colour)["What colour is the circle?"] == {"answer": "blue"}
    assert replies(questions.shape)["What shape is red?"] == {"answer": "square"}
    assert replies(questions.count)["How many things are there?"] == {"answer": "2"}
    assert replies(questions.count)["How many things are red?"] == {"answer": "1"}
    present = replies(questions.presence)
    assert present["Is there a red square?"] == {"answer": "yes"}
    assert any(reply == {"answer": "no"} for reply in present.values())


@pytest.mark.parametrize("kind", [questions.place, questions.height, questions.direction, questions.colour])
def test_what_has_no_single_answer_is_not_asked(kind):
    twins = ShapeScene((Thing("red", "square", 0.1, 0.1), Thing("red", "square", 0.9, 0.9)), NOTHING)
    assert not replies(kind, twins)


def test_a_conversation_has_a_scene_a_question_and_a_reply_in_each_turn():
    demo = questions.conversation(np.random.default_rng(1))
    assert len(demo.observations) == len(demo.replies) == len(demo.imitate) <= 4
    assert all(seen.images["view"].shape[2] == 3 for seen in demo.observations)
