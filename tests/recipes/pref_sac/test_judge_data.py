import numpy as np
import pytest

from lookact.judges import prompts
from lookact.judges.goals import goal_of
from lookact.judges.server.batching import Message, Prompt
from lookact.models.vlm.loading import load_chat
from lookact.models.vlm.tiny import TinySpec, make_tiny
from lookact.recipes.pref_sac.judge_data import (
    LabelledImages,
    description_of,
    draw_pairs,
    levels,
    make_corpus,
    make_lesson,
    make_lessons,
    segment_of,
    verdict_of,
)
from lookact.rollout.samplers.chat_engine import ChatEngine
from lookact.text.verdicts import parse_verdict

GOAL = goal_of("Pendulum-v1")


@pytest.fixture(scope="module")
def gallery():
    images = np.random.default_rng(0).integers(0, 255, (20, 32, 32, 3), dtype=np.uint8)
    return LabelledImages(images, np.linspace(-16.0, 0.0, 20), np.zeros((20, 1), np.float32))


@pytest.fixture(scope="module")
def chat(tmp_path_factory):
    spec = TinySpec(hidden=64, layers=1, vision_hidden=32, vision_depth=1, image_size=32)
    return load_chat(make_tiny(tmp_path_factory.mktemp("judge"), corpus=make_corpus(GOAL), spec=spec))


def test_levels_run_from_the_worst_to_the_goal_whatever_the_outliers():
    scores = np.concatenate([[-1000.0], np.linspace(2.0, 10.0, 999)])
    level = levels(scores, scores)
    assert level.min() == 0.0
    assert level.max() == 1.0
    assert level[500] == pytest.approx(0.5, abs=0.02)


def test_a_gallery_without_differences_has_one_level():
    assert set(levels(np.full(5, 3.0), np.full(5, 3.0))) == {0.0}


@pytest.mark.parametrize(
    ("first", "second", "verdict"), [(0.2, 0.8, 1), (0.8, 0.2, 0), (0.5, 0.54, -1), (0.3, 0.3, -1)]
)
def test_the_higher_level_wins_unless_they_are_close(first, second, verdict):
    assert verdict_of(first, second, 0.05) == verdict
    closing = {0: "The first is closer.", 1: "The second is closer.", -1: "They are equally close."}[verdict]
    assert description_of(first, second, 0.05).endswith(closing)


def test_a_description_tells_both_ratings():
    assert description_of(0.31, 0.68, 0.05) == "The first is at 3, the second at 7. The second is closer."


def test_rare_levels_are_drawn_as_often_as_common_ones():
    level = np.concatenate([np.full(990, 0.05), np.full(10, 0.95)])
    drawn = draw_pairs(level, 2000, np.random.default_rng(0))
    assert np.mean(level[drawn] > 0.5) == pytest.approx(0.5, abs=0.05)


def test_each_kind_of_question_is_asked_in_the_judges_words(gallery):
    level, pair = levels(gallery.scores, gallery.scores), np.array([2, 17])
    asked = {
        kind: make_lesson(kind, gallery, level, pair, GOAL, 0.05)
        for kind in ("single", "describe", "rating", "verdict")
    }
    opening, first, between, second, question = asked["single"].content
    assert (opening, between) == (prompts.DESCRIBE_OPENING, prompts.DESCRIBE_BETWEEN)
    assert np.array_equal(first, gallery.images[2])
    assert np.array_equal(second, gallery.images[17])
    assert question == prompts.SINGLE.format(goal=GOAL)
    assert asked["single"].reply == asked["verdict"].reply == "1"
    assert asked["describe"].reply in asked["verdict"].content[0]
    assert asked["rating"].reply == "1"
    assert len(asked["rating"].content) == 2


def test_replies_are_verdicts_that_the_judge_can_read(gallery):
    lessons = make_lessons(gallery, GOAL, count=200, margin=0.05, seed=0)
    direct = [lesson for lesson in lessons if prompts.SINGLE.format(goal=GOAL) in map(str, lesson.content)]
    assert {parse_verdict(lesson.reply) for lesson in direct} == {0, 1, -1}
    again = make_lessons(gallery, GOAL, count=200, margin=0.05, seed=0)
    assert [lesson.reply for lesson in again] == [lesson.reply for lesson in lessons]


def test_a_lesson_is_written_down_as_the_server_writes_the_request(chat, gallery):
    for lesson in make_lessons(gallery, GOAL, count=12, margin=0.05, seed=1):
        segment = segment_of(chat, lesson)
        row = ChatEngine(chat)._encode(0, Prompt((Message("user", tuple(lesson.content)),), max_tokens=4))
        n = len(row.ids)
        assert np.array_equal(segment.ids[:n], row.ids)
        assert chat.tokenizer.decode(segment.ids[n:]) == f"{lesson.reply}<|im_end|>"
        assert segment.positions.tolist() == list(range(n, len(segment.ids)))
        assert segment.mask.all()
