import io
import logging

import pytest
from rich.console import Console

from lookact.training import progress as module
from lookact.training.progress import progress


@pytest.fixture
def screen(monkeypatch):
    """A terminal of 120 columns that keeps what is drawn on it."""
    console = Console(file=io.StringIO(), force_terminal=True, width=120)
    monkeypatch.setattr(module, "CONSOLE", console)
    return console.file


def test_off_a_terminal_there_is_only_a_log_line(caplog, capfd):
    with caplog.at_level(logging.INFO, "lookact"):
        assert list(progress("abc", "collecting")) == ["a", "b", "c"]
    assert [record.message for record in caplog.records] == ["collecting 3/3, 0:00:00 left"]
    assert capfd.readouterr() == ("", "")


def test_lines_tell_count_and_remark(caplog, monkeypatch):
    monkeypatch.setattr(module, "SECONDS_BETWEEN_LINES", 0.0)
    bar = progress(range(5, 8), "training", done=4)
    with caplog.at_level(logging.INFO, "lookact"):
        for step in bar:
            bar.remark = f"reward {step}"
    lines = [record.message for record in caplog.records]
    assert [line.split(",")[0] for line in lines] == ["training 5/7", "training 6/7", "training 7/7", "training 7/7"]
    assert lines[-1].endswith("reward 7")


def test_work_of_unknown_length(caplog):
    with caplog.at_level(logging.INFO, "lookact"):
        assert list(progress(iter([1, 2]), "reading")) == [1, 2]
    assert caplog.records[-1].message == "reading 2/?"


def test_a_terminal_shows_nested_bars_and_leaves_none_open(screen):
    outer = progress(2, "training")
    for _ in outer:
        outer.remark = "reward 0.7"
        with progress(10, "collecting") as inner:
            inner.advance(10)
    drawn = screen.getvalue()
    assert "training" in drawn
    assert "2/2" in drawn
    assert "reward 0.7" in drawn
    assert module._shown == []


def test_a_loop_left_early_closes_its_bar(screen):
    with pytest.raises(KeyboardInterrupt), progress(5, "training"):
        raise KeyboardInterrupt
    assert module._shown == []


def test_only_the_first_rank_draws(screen, monkeypatch):
    monkeypatch.setenv("RANK", "1")
    assert list(progress(3, "training")) == [0, 1, 2]
    assert screen.getvalue() == ""
