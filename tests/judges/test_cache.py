import threading
import time

import pytest

from lookact.errors import JudgeError
from lookact.judges.cache import ReplyCache, request_key


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
