import json

import numpy as np
import pytest

from lookact.algorithms.judge_training import (
    HELD_OUT,
    REPORT,
    LabelledImages,
    clear_accuracy,
    description_of,
    draw_image_pairs,
    levels,
    make_corpus,
    make_qa_pair,
    make_qa_pairs,
    measure_judge,
    rates,
    segment_of,
    verdict_of,
)
from lookact.judges import prompts
from lookact.judges.goals import goal_of
from lookact.judges.server.batching import Message, Prompt
from lookact.models.vlm.loading import load_chat
from lookact.models.vlm.tiny import TinySpec, make_tiny
from lookact.plots.judge_accuracy import count_outcomes, read_query_log
from lookact.rollout.samplers.chat_engine import ChatEngine
from lookact.text.verdicts import parse_verdict
from lookact.types import Preference

GOAL = goal_of("Pendulum-v1")


@pytest.fixture(scope="module")
def data():
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


def test_a_data_without_differences_has_one_level():
    assert set(levels(np.full(5, 3.0), np.full(5, 3.0))) == {0.0}


def test_a_yes_is_as_frequent_as_the_goal_is_near(data):
    asked = make_qa_pairs(data, GOAL, count=4000, margin=0.05, seed=0, yes=True)
    level = levels(data.scores, data.scores)
    places = {image.tobytes(): place for place, image in enumerate(data.images)}
    rated = [pair for pair in asked if "yes or no" in pair.content[-1]]
    shares = [level[places[pair.content[0].tobytes()]] for pair in rated]
    said = [pair.answer == "yes" for pair in rated]
    assert np.mean(said) == pytest.approx(np.mean(shares), abs=0.1)
    assert np.mean([yes for yes, share in zip(said, shares) if share > 0.8]) > 0.7
    assert not any("from 0 (not begun)" in str(pair.content[-1]) for pair in asked)


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
    drawn = draw_image_pairs(level, 2000, np.random.default_rng(0))
    assert np.mean(level[drawn] > 0.5) == pytest.approx(0.5, abs=0.05)


def test_each_kind_of_question_is_asked_in_the_judges_words(data):
    level, pair = levels(data.scores, data.scores), np.array([2, 17])
    kinds = ("single", "describe", "rating", "verdict")
    asked = {kind: make_qa_pair(kind, data, level, pair, 0.5, GOAL, 0.05) for kind in kinds}
    opening, first, between, second, question = asked["single"].content
    assert (opening, between) == (prompts.DESCRIBE_OPENING, prompts.DESCRIBE_BETWEEN)
    assert np.array_equal(first, data.images[2])
    assert np.array_equal(second, data.images[17])
    assert question == prompts.SINGLE.format(goal=GOAL)
    assert asked["single"].answer == asked["verdict"].answer == "1"
    assert asked["describe"].answer in asked["verdict"].content[0]
    assert asked["rating"].answer == "1"
    assert len(asked["rating"].content) == 2


def test_replies_are_verdicts_that_the_judge_can_read(data):
    qa_pairs = make_qa_pairs(data, GOAL, count=200, margin=0.05, seed=0)
    direct = [qa_pair for qa_pair in qa_pairs if prompts.SINGLE.format(goal=GOAL) in map(str, qa_pair.content)]
    assert {parse_verdict(qa_pair.answer) for qa_pair in direct} == {0, 1, -1}
    again = make_qa_pairs(data, GOAL, count=200, margin=0.05, seed=0)
    assert [qa_pair.answer for qa_pair in again] == [qa_pair.answer for qa_pair in qa_pairs]


def test_a_qa_pair_is_written_down_as_the_server_writes_the_request(chat, data):
    for qa_pair in make_qa_pairs(data, GOAL, count=12, margin=0.05, seed=1):
        segment = segment_of(chat, qa_pair)
        row = ChatEngine(chat)._encode(0, Prompt((Message("user", tuple(qa_pair.content)),), max_tokens=4))
        n = len(row.ids)
        assert np.array_equal(segment.ids[:n], row.ids)
        assert chat.tokenizer.decode(segment.ids[n:]) == f"{qa_pair.answer}<|im_end|>"
        assert segment.positions.tolist() == list(range(n, len(segment.ids)))
        assert segment.mask.all()


BRIGHT = "to be bright"


def bright_images(count, seed):
    """Images of one grey each, and how bright they are."""
    light = np.random.default_rng(seed).uniform(0.0, 1.0, count)
    images = np.broadcast_to((255 * light).astype(np.uint8)[:, None, None, None], (count, 32, 32, 3)).copy()
    return LabelledImages(images, light, light[:, None].astype(np.float32))


class Photometer:
    """Prefers the brighter picture where it is brighter by `doubt`."""

    def __init__(self, doubt=0.0, upside_down=False):
        self.doubt, self.upside_down = doubt, upside_down
        self.counts = {"unparsable": 0}

    def compare(self, pairs, goal):
        assert goal == BRIGHT
        gaps = [float(two.mean()) - float(one.mean()) for one, two in pairs]
        verdicts = [-1 if abs(gap) <= 255 * self.doubt else int((gap > 0) != self.upside_down) for gap in gaps]
        return [Preference(*pair, verdict) for pair, verdict in zip(pairs, verdicts)]


def test_rates_count_decided_pairs_with_an_order():
    verdicts, first, second = np.array([1, 0, -1, 1]), np.array([0.0, 0.0, 0.0, 2.0]), np.array([1.0, 1.0, 1.0, 2.0])
    told = rates(verdicts, first, second, np.ones(4, bool))
    # of the four one is undecided and one has no right answer
    assert (told["pairs"], told["accuracy"], told["no_preference_rate"]) == (4, 0.5, 0.25)
    none = rates(verdicts, first, second, np.zeros(4, bool))
    assert (none["pairs"], none["accuracy"], none["no_preference_rate"]) == (0, None, None)


@pytest.mark.parametrize(("upside_down", "accuracy"), [(False, 1.0), (True, 0.0)])
def test_a_report_tells_how_good_a_judge_is_by_difficulty(tmp_path, upside_down, accuracy):
    judge = Photometer(doubt=0.1, upside_down=upside_down)
    report = measure_judge(judge, bright_images(50, 0), BRIGHT, pairs=300, seed=0, folder=tmp_path)
    assert report["clear"]["accuracy"] == accuracy
    assert report["clear"]["no_preference_rate"] == 0.0
    easy, hard = report["by_difficulty"][-1], report["by_difficulty"][0]
    assert hard["no_preference_rate"] == 1.0
    assert easy["accuracy"] == accuracy
    assert sum(row["pairs"] for row in report["by_difficulty"]) == 300
    assert json.loads((tmp_path / REPORT).read_text())["clear"]["pairs"] == report["clear"]["pairs"]
    assert clear_accuracy(report).startswith(f"{accuracy:.0%} of")


def test_the_held_out_pairs_can_be_drawn(tmp_path):
    measure_judge(Photometer(), bright_images(50, 0), BRIGHT, pairs=100, seed=0, folder=tmp_path)
    counted = count_outcomes(read_query_log(tmp_path / HELD_OUT))
    assert counted.counts[:, 0].sum() + counted.ties == 100
