import json
import signal
import threading
import time

import numpy as np
import pytest

from lookact.errors import JudgeError
from lookact.judges.client import ClientSpec, JudgeClient
from lookact.judges.prompts import VERDICT_TOKENS
from lookact.judges.vlm_judge import ReplyCache, VLMJudge, by_rating, parse_rating, request_key

GOAL = "to open the {drawer}"


class Scripted:
    """A client that answers from a function and remembers what it was asked."""

    model = "scripted"

    def __init__(self, answer):
        self.answer, self.asked = answer, []

    def ask(self, content, *, max_tokens):
        self.asked.append((list(content), max_tokens))
        return self.answer(content)

    def map(self, function, items):
        return [function(item) for item in items]


def pictures(content):
    return [part for part in content if not isinstance(part, str)]


def brighter(content):
    """The stand-in of a VLM: sees which picture is brighter, and reads what was written."""
    light = [picture.mean() for picture in pictures(content)]
    if light:
        return f"<think>0 or 1?</think>Image {int(light[1] > light[0])} is {{brighter}}."
    return "1" if "Image 1 is {brighter}" in content[0] else "0"


def shade(value):
    return np.full((8, 8, 3), value, dtype=np.uint8)


PAIRS = [(shade(10), shade(200)), (shade(200), shade(10)), (shade(5), shade(6))]


def test_describes_first_and_decides_by_the_text_alone():
    client = Scripted(brighter)
    preferences = VLMJudge(client).compare(PAIRS[:2], GOAL)
    assert [preference.verdict for preference in preferences] == [1, 0]
    (first, _), (second, tokens) = client.asked[:2]
    assert [picture.mean() for picture in pictures(first)] == [10, 200]
    assert GOAL in first[-1]
    assert GOAL in second[0]
    assert pictures(second) == []
    assert tokens == VERDICT_TOKENS == 16
    assert "Image 1 is {brighter}." in second[0]
    assert "think" not in second[0]
    assert preferences[0].raw_text.endswith("---\n1")
    assert preferences[0].first is PAIRS[0][0]
    assert preferences[0].second is PAIRS[0][1]


def test_every_outcome_is_counted_apart():
    replies = iter(["about them", "-1", "about them", "what a nice day", "about them", "it is hard to tell", "", "0"])
    judge = VLMJudge(Scripted(lambda content: next(replies)))
    same = (shade(3), shade(3))
    verdicts = [preference.verdict for preference in judge.compare([*PAIRS, same, PAIRS[0]], GOAL)]
    assert verdicts == [-1, -1, -1, -1, 0]
    assert dict(judge.counts) == {
        "pairs": 5, "requests": 8, "cached": 0, "identical": 1, "no_preference": 2, "unparsable": 1
    }  # fmt: skip


def test_identical_pairs_cost_no_request():
    client = Scripted(brighter)
    preference = VLMJudge(client).compare([(shade(3), shade(3))], GOAL)[0]
    assert (preference.verdict, preference.raw_text, client.asked) == (-1, "identical", [])


def test_one_prompt_asks_once():
    client = Scripted(lambda content: "-1")
    assert VLMJudge(client, variant="single").compare(PAIRS[:1], GOAL)[0].verdict == -1
    assert len(client.asked) == 1
    assert len(pictures(client.asked[0][0])) == 2


class Doubtful(Scripted):
    """A client that tells how likely each first token is."""

    def first_token(self, content):
        self.asked.append((list(content), None))
        return self.answer(content)


@pytest.mark.parametrize(("likely", "verdict", "outcome"), [
    ({"0": -1.0, "1": -0.5, "-": -3.0}, 1, ""),
    ({"0": -0.4, "-1": -1.5}, 0, ""),
    ({"0": -2.0, "1": -1.5, "-": -0.5}, -1, "no_preference"),
    ({"image": -0.1, "the": -2.0}, -1, "unparsable"),
])  # fmt: skip
def test_the_likeliest_of_three_answers_decides(likely, verdict, outcome):
    judge = VLMJudge(Doubtful(lambda content: likely), variant="logprob")
    (told,) = judge.compare(PAIRS[:1], GOAL)
    assert told.verdict == verdict
    assert judge.counts["no_preference"] == (outcome == "no_preference")
    assert judge.counts["unparsable"] == (outcome == "unparsable")
    assert json.loads(told.raw_text) == likely


def test_the_picture_likelier_to_be_told_a_yes_is_better(tmp_path):
    client = Doubtful(lambda content: {"yes": -1.0 / (1.0 + content[0].mean()), "no": -2.0})
    judge = VLMJudge(client, variant="yes", cache=ReplyCache(tmp_path))
    assert [told.verdict for told in judge.compare(PAIRS, GOAL)] == [1, 0, 1]
    # four shades, each asked about once
    assert len(client.asked) == 4
    silent = VLMJudge(Doubtful(lambda content: {"maybe": -0.1}), variant="yes")
    silent.compare(PAIRS[:1], GOAL)
    assert silent.counts["unparsable"] == 1


def test_ratings_are_compared_and_a_picture_is_rated_once(tmp_path):
    client = Scripted(lambda content: f"{pictures(content)[0].mean() / 25.5:.1f}")
    judge = VLMJudge(client, variant="rating", cache=ReplyCache(tmp_path))
    verdicts = [preference.verdict for preference in judge.compare([*PAIRS, (shade(10), shade(6))], GOAL)]
    assert verdicts == [1, 0, -1, 0]
    assert len(client.asked) == judge.counts["requests"] == 4
    assert judge.counts["cached"] == 4


@pytest.mark.parametrize(
    ("text", "rating"), [("7", 7), ("I'd say 8.5.", 8.5), ("10/10", 10), ("<think>3</think>0 out of 10", 0)]
)
def test_a_rating_is_the_first_number_from_0_to_10(text, rating):
    assert parse_rating(text) == rating


def test_a_rating_without_a_number_is_unparsable():
    judge = VLMJudge(Scripted(lambda content: "quite 100 close"), variant="rating")
    assert judge.compare(PAIRS[:1], GOAL)[0].verdict == -1
    assert judge.counts["unparsable"] == 1
    assert judge.counts["no_preference"] == 0


def test_ratings_decide():
    assert (by_rating(["3", "4"]), by_rating(["4", "3"]), by_rating(["4", "4.0"])) == (1, 0, -1)


def test_a_rerun_costs_no_request_and_gives_the_same(tmp_path):
    first = VLMJudge(Scripted(brighter), cache=ReplyCache(tmp_path)).compare(PAIRS, GOAL)
    client = Scripted(brighter)
    judge = VLMJudge(client, cache=ReplyCache(tmp_path))
    again = judge.compare(PAIRS, GOAL)
    assert client.asked == []
    assert judge.counts["requests"] == 0
    assert judge.counts["cached"] == 6
    assert [preference.raw_text for preference in again] == [preference.raw_text for preference in first]
    judge.compare(PAIRS[:1], "another goal")
    assert len(client.asked) == 2


def test_what_was_answered_before_a_failure_is_not_asked_again(tmp_path):
    def fails_at_the_third(content):
        if len(client.asked) == 4:
            raise JudgeError("the server is gone")
        return brighter(content)

    client = Scripted(fails_at_the_third)
    judge = VLMJudge(client, cache=ReplyCache(tmp_path))
    with pytest.raises(JudgeError):
        judge.compare(PAIRS, GOAL)
    assert judge.counts["requests"] == 3
    assert judge.counts["pairs"] == 0
    verdicts = [preference.verdict for preference in judge.compare(PAIRS, GOAL)]
    assert verdicts == [1, 0, 1]
    # the third description reads like the first: its verdict is known as well
    assert judge.counts["requests"] == 5
    assert judge.counts["pairs"] == 3


def test_counts_survive_a_resume():
    judge, resumed = VLMJudge(Scripted(brighter)), VLMJudge(Scripted(brighter))
    judge.compare(PAIRS, GOAL)
    resumed.load_state_dict(judge.state_dict())
    resumed.compare(PAIRS[:1], GOAL)
    assert resumed.counts["pairs"] == 4
    assert resumed.counts["requests"] == 8


@pytest.mark.slow
def test_a_server_killed_and_restarted_loses_no_label_and_counts_none_twice(serve_apart, free_port, tmp_path):
    rng = np.random.default_rng(0)
    pairs = [tuple(rng.integers(0, 255, (2, 16, 16, 3), dtype=np.uint8)) for _ in range(40)]
    truth = [int(second.mean() > first.mean()) for first, second in pairs]
    spec = ClientSpec(f"http://127.0.0.1:{free_port}", retry_s=300.0, concurrency=4)
    judge = VLMJudge(JudgeClient(spec), cache=ReplyCache(tmp_path))
    server = serve_apart(free_port, dies_after=10)

    def serve_again():
        server.wait(60)
        serve_apart(free_port)

    serving = threading.Thread(target=serve_again)
    serving.start()
    verdicts = [preference.verdict for preference in judge.compare(pairs, "a bright picture")]
    serving.join(60)
    assert server.returncode == -signal.SIGKILL
    assert verdicts == truth
    assert judge.client.retries > 0
    assert judge.counts["pairs"] == 40
    assert judge.counts["requests"] + judge.counts["cached"] == 80
    assert len(list(tmp_path.rglob("*.json"))) == judge.counts["requests"]


def never():
    raise AssertionError("asked although the reply was kept")


def test_a_reply_is_asked_for_once_and_outlives_the_process(tmp_path):
    assert ReplyCache(tmp_path).recall("ab12", lambda: "a reply — 0") == "a reply — 0"
    assert ReplyCache(tmp_path).recall("ab12", never) == "a reply — 0"


@pytest.mark.parametrize(
    "torn", ["", '{"key": "ab12", "rep', "[]", '{"key": "other", "reply": "x"}', '{"key": "ab12"}']
)
def test_a_torn_or_foreign_entry_is_ignored_and_mended(tmp_path, torn):
    cache = ReplyCache(tmp_path)
    cache.store("ab12", "old")
    (tmp_path / "ab" / "ab12.json").write_text(torn)
    assert cache.recall("ab12", lambda: "new") == "new"
    assert cache.load("ab12") == "new"


def test_a_failure_keeps_nothing_and_blocks_nobody(tmp_path):
    cache = ReplyCache(tmp_path)

    def fail():
        raise JudgeError("gone")

    with pytest.raises(JudgeError):
        cache.recall("ab12", fail)
    assert cache.recall("ab12", lambda: "later") == "later"


def test_threads_that_ask_the_same_ask_once(tmp_path):
    cache, asked, replies = ReplyCache(tmp_path), [], []

    def ask():
        asked.append(1)
        time.sleep(0.05)
        return "one"

    threads = [threading.Thread(target=lambda: replies.append(cache.recall("ab12", ask))) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(30)
    assert (asked, replies) == ([1], ["one"] * 8)


def test_no_temporary_files_stay(tmp_path):
    ReplyCache(tmp_path).store("ab12", "reply")
    assert [path.name for path in tmp_path.rglob("*") if path.is_file()] == ["ab12.json"]


def test_the_key_depends_on_everything_that_decides_the_reply(images):
    keys = {
        request_key("m", ["goal", images[0], images[1]], 16),
        request_key("n", ["goal", images[0], images[1]], 16),
        request_key("m", ["other goal", images[0], images[1]], 16),
        request_key("m", ["goal", images[1], images[0]], 16),
        request_key("m", ["goal", images[0]], 16),
        request_key("m", ["goal", images[0], images[1]], 17),
        request_key("m", ["go", "al", images[0], images[1]], 16),
        request_key("m", ["goal", images[0].reshape(16, 64, 3), images[1]], 16),
    }
    assert len(keys) == 8


def test_the_key_does_not_depend_on_how_an_image_lies_in_memory(images):
    mirrored = images[0][:, ::-1]
    assert request_key("m", [mirrored], 1) == request_key("m", [mirrored.copy()], 1)
