"""Small scripts stand for the processes: they say what a real one would, and take no time to start."""

import os
import signal
import subprocess
import sys
import time

import pytest

from lookact.cli import launch as launching
from lookact.cli.launch import is_launched, launch, prepare_process, to_launch

NOTE = "from lookact.cli.launch import write_error_file, is_launched; import os, sys, time; rank = os.environ['RANK']\n"


@pytest.fixture
def script(monkeypatch):
    """Makes every process run a piece of Python."""
    return lambda text: monkeypatch.setattr(launching, "COMMAND", ("-c", NOTE + text))


def failure(capfd, processes=2) -> tuple[int, str]:
    with pytest.raises(SystemExit) as stop:
        launch([], processes)
    return stop.value.code, capfd.readouterr().err


@pytest.mark.slow
def test_every_process_gets_the_words_and_its_rank(script, tmp_path):
    script(f"assert is_launched(); open(os.path.join({str(tmp_path)!r}, rank), 'w').write(' '.join(sys.argv[1:]))")
    launch(["train", "toy"], 2)
    assert {path.name: path.read_text() for path in tmp_path.iterdir()} == {"0": "train toy", "1": "train toy"}


@pytest.mark.slow
def test_a_failed_process_ends_with_its_own_line_and_code(script, capfd):
    script("if rank == '1': write_error_file('lr = -1: set it above 0', 2, ours=True); sys.exit(2)\ntime.sleep(60)")
    assert failure(capfd) == (2, "lookact: lr = -1: set it above 0\n")


@pytest.mark.slow
def test_the_reason_is_told_and_not_the_connection_lost_to_it(script, capfd):
    script(
        "write_error_file('failed: RuntimeError: closed' if rank == '0' else 'disk full', 1, ours=rank == '1')\n"
        "sys.exit(1)"
    )
    # both have failed by the time anyone looks, unless the machine is busy: then only the first is known
    code, line = failure(capfd)
    assert code == 1
    assert line in ("lookact: disk full\n", "lookact: failed: RuntimeError: closed\n")


def test_the_note_of_our_own_error_comes_first(capfd):
    class Failed:
        exitcode = 1

        def __init__(self, **note):
            self.error_file_data = note

    notes = [Failed(message="lost", code=1, ours=False, at=1.0), Failed(message="reason", code=2, ours=True, at=2.0)]
    with pytest.raises(SystemExit) as stop:
        launching._end_as(notes)
    assert stop.value.code == 2
    assert capfd.readouterr().err == "lookact: reason\n"


@pytest.mark.slow
def test_a_killed_process_is_one_line(script, capfd):
    script("if rank == '1': os.kill(os.getpid(), 9)\ntime.sleep(60)")
    code, line = failure(capfd)
    assert code == 1
    assert line == "lookact: a process was ended by SIGKILL; train continues where it was with --auto-resume\n"


@pytest.mark.slow
def test_an_interrupt_ends_every_process(tmp_path):
    """In a process of its own, as one presses Ctrl-C."""
    text = (
        f"try: open(os.path.join({str(tmp_path)!r}, rank), 'w').write(str(os.getpid())); time.sleep(600)\n"
        "except KeyboardInterrupt: pass"
    )
    parent = (
        f"import sys; from lookact.cli import launch as l; l.COMMAND = ('-c', {NOTE + text!r})\n"
        "try: l.launch([], 2)\nexcept KeyboardInterrupt: sys.exit(130)"
    )
    started = subprocess.Popen([sys.executable, "-c", parent], stderr=subprocess.PIPE, text=True)
    while len(pids := [path.read_text() for path in tmp_path.iterdir()]) < 2 or not all(pids):
        assert started.poll() is None
        time.sleep(0.05)
    started.send_signal(signal.SIGINT)
    assert started.wait() == 130
    assert started.stderr.read() == ""
    for pid in pids:
        with pytest.raises(ProcessLookupError):
            os.kill(int(pid), 0)


def test_one_of_several_processes_launches_no_more(monkeypatch):
    monkeypatch.delenv("RANK", raising=False)
    assert to_launch(2)
    assert not to_launch(1)
    monkeypatch.setenv("RANK", "0")
    assert not to_launch(2)


def test_only_our_own_launches_hush_a_process(monkeypatch):
    monkeypatch.delenv("OMP_NUM_THREADS", raising=False)
    monkeypatch.setenv("TORCHELASTIC_RUN_ID", "none")
    assert not is_launched()
    prepare_process()
    assert "OMP_NUM_THREADS" not in os.environ
