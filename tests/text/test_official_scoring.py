"""VSI-Bench's published scoring, against a second implementation written from the published code's description."""

import json
import random
from collections import defaultdict

import pytest

from lookact.errors import DataError
from lookact.text.answers import (
    DIRECTION_TYPES,
    NUMERIC_TYPES,
    QUESTION_TYPES,
    aggregate,
    official_prompt,
    score_answer,
)
from lookact.training.vsi_scoring import score_predictions
from scene_notes import real_notes

STEP = (0.95 - 0.5) / 9
THRESHOLDS = [*(0.5 + place * STEP for place in range(9)), 0.95]
"""Ten places from .5 to .95 as numpy spaces them evenly: the last is the end itself."""


def oracle_score(kind, reply, truth):
    """The first word up to a space, full stops off its end; numbers by the share of thresholds in plain doubles."""
    word = reply.partition(" ")[0]
    while word.endswith("."):
        word = word[:-1]
    word = word.strip()
    if kind not in NUMERIC_TYPES:
        return 1.0 if word.lower() == truth.lower() else 0.0
    try:
        said, true = float(word), float(truth)
    except ValueError:
        return 0.0
    return [abs(said - true) / true <= 1 - threshold for threshold in THRESHOLDS].count(True) / 10


def oracle_overall(rows):
    """The mean over types of their means, in which the three kinds of direction are one, a third each."""
    found = defaultdict(list)
    for kind, score in rows:
        found[kind].append(score)
    means = {kind: sum(found[kind]) / len(found[kind]) for kind in sorted(found)}
    direction = sum(means.pop(kind) for kind in DIRECTION_TYPES) / 3
    return sum([*means.values(), direction]) / (len(means) + 1)


def messy(rng, kind, truth):
    """A reply as models give it, more often than not near the truth."""
    if kind in NUMERIC_TYPES:
        steps = [1, 0.5, 0.55, 0.6, 0.65, 0.7, 0.75, 0.8, 0.85, 0.9, 0.95, 1.05, 1.1, 1.2, 1.25, 1.3, 1.5, rng.random()]
        near = float(truth) * rng.choice(steps)
        word = rng.choice(
            [f"{near:g}", f"{near:.1f}", f"{round(near)}", f"{near!r}", "nan", "inf", "-1", "1_000", "two"]
        )
    else:
        word = rng.choice([truth, truth.lower(), f"({truth})", f"{truth}:", rng.choice("ABCDE"), "left"])
    lead = rng.choice(["", "", "", "", " ", "  ", "\n", "\t", "The answer is ", "**"])
    tail = rng.choice(["", "", ".", "..", ". ", " metres", ".\n", " .", "\n", ",", " m.", ". The chair", "\u00a0m"])
    return lead + word + tail


def test_five_thousand_messy_predictions_score_as_published():
    rng, rows, higher = random.Random(0), [], 0
    for number in range(5000):
        kind = rng.choice(QUESTION_TYPES)
        letters = kind not in NUMERIC_TYPES
        truth = rng.choice("ABCD") if letters else rng.choice([str(rng.randint(1, 12)), f"{rng.uniform(0.3, 40):.1f}"])
        reply = messy(rng, kind, truth)
        score = score_answer(kind, reply, truth, scoring="official")
        assert score == oracle_score(kind, reply, truth), (kind, reply, truth)
        ours = score_answer(kind, reply, truth)
        assert ours >= score
        higher += ours > score
        rows.append({"id": number, "question_type": kind, "ground_truth": truth, "prediction": reply})
        rows[-1]["score"] = score
    assert higher > 100
    pairs = [(row["question_type"], row["score"]) for row in rows]
    assert aggregate(pairs, scoring="official").overall == pytest.approx(oracle_overall(pairs), rel=1e-15)
    found = score_predictions(rows, scoring="official", resamples=20)
    assert found.overall.mean == aggregate(pairs, scoring="official").overall
    assert found.micro.mean == pytest.approx(sum(row["score"] for row in rows) / 5000)
    assert found.overall.low < found.overall.mean < found.overall.high


def test_the_real_rooms_true_numbers_score_as_published():
    scenes = json.loads(real_notes().read_text())
    counts = [("object_counting", str(n)) for scene in scenes.values() for n in scene["object_counts"].values()]
    sizes = [("room_size_estimation", f"{scene['room_size']:.1f}") for scene in scenes.values()]
    assert (len(scenes), len(sizes)) == (150, 150)
    rng = random.Random(1)
    for kind, truth in [*counts, *sizes]:
        for reply in (truth, *(messy(rng, kind, truth) for _ in range(10))):
            assert score_answer(kind, reply, truth, scoring="official") == oracle_score(kind, reply, truth)


@pytest.mark.parametrize(
    ("truth", "reply", "official", "exact"),
    [
        ("5", "6", 0.6, 0.7),  # off by a fifth: 1 - 0.8 is a last bit below 0.2
        ("5", "4", 0.6, 0.7),
        ("10", "12", 0.6, 0.7),
        ("4", "5", 0.6, 0.6),
        ("3", " 3", 0.0, 1.0),  # the first word is empty
        ("3", "3 chairs", 1.0, 1.0),
        ("3", "3.", 1.0, 1.0),
        ("3", "\n3", 1.0, 1.0),  # only a space parts words
    ],
)
def test_where_the_two_ways_differ(truth, reply, official, exact):
    assert score_answer("object_counting", reply, truth, scoring="official") == official
    assert score_answer("object_counting", reply, truth) == exact


def test_the_kinds_of_direction_are_one_task():
    asked = [("object_counting", 1.0), ("object_counting", 0.5)]
    assert aggregate(asked, scoring="official").overall == 0.75
    directions = [(kind, float(kind.endswith("easy"))) for kind in DIRECTION_TYPES]
    assert aggregate([*asked, *directions], scoring="official").overall == (0.75 + 1 / 3) / 2
    # where the published code fails
    assert aggregate([*asked, *directions[:2]], scoring="official").overall == (0.75 + 1 / 2) / 2


def test_a_true_number_of_zero_can_not_be_scored_as_published():
    with pytest.raises(DataError, match="divides"):
        score_answer("object_counting", "0", "0", scoring="official")


def test_prompts_are_the_published_ones():
    asked = official_prompt("object_counting", "How many chair(s) are in this room?", None)
    assert asked == (
        "These are frames of a video.\nHow many chair(s) are in this room?\n"
        "Please answer the question using a single word or phrase."
    )
    chosen = official_prompt("route_planning", "Where?", ["A. Turn Left", "B. Turn Right"])
    assert chosen == (
        "These are frames of a video.\nWhere?\nOptions:\nA. Turn Left\nB. Turn Right\n"
        "Answer with the option's letter from the given choices directly."
    )
    with pytest.raises(DataError, match="no options"):
        official_prompt("route_planning", "Where?", None)
