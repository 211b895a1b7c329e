import fcntl
import os
import subprocess
import sys

import pytest

from lookact.viewer.status import last_error, run_status

ERROR = (
    "2026-01-01 10:00:00,123 INFO lookact.training.run: saved checkpoint-1\n"
    "2026-01-01 10:00:01,123 DEBUG lookact.training.run: the run ended with an error\n"
    "Traceback (most recent call last):\n"
    '  File "x.py", line 1, in main\n'
    "{end}\n"
)
STOPPED = ERROR.format(end="lookact.errors.TrainingStopped: the loss is not finite")
LATER = "2026-01-01 11:00:00,000 INFO lookact.training.run: going on from checkpoint-1 after step 1\n"


def test_the_last_error_of_a_log_is_its_last_line():
    assert last_error(STOPPED) == "lookact.errors.TrainingStopped: the loss is not finite"
    assert last_error(STOPPED + LATER) is None
    assert last_error("") is None


@pytest.mark.parametrize(
    ("log", "result", "told"),
    [
        (STOPPED, None, ("failed", "lookact.errors.TrainingStopped: the loss is not finite")),
        (
            ERROR.format(end="KeyboardInterrupt"),
            None,
            ("interrupted", "by Ctrl-C; train continues where it was with --auto-resume"),
        ),
        ("", {"after": {}}, ("finished", "")),
        (STOPPED + LATER, {"after": {}}, ("finished", "")),
    ],
)
def test_what_a_folder_tells(tmp_path, write_run, log, result, told):
    assert run_status(write_run(tmp_path / "run", log=log, result=result)) == told


def test_a_run_without_an_end_is_alive_while_it_writes(tmp_path, write_run):
    folder = write_run(tmp_path / "run", [{"step": 1}], changed=1000)
    assert run_status(folder, now=1030.0)[0] == "running"
    assert run_status(folder, now=1100.0)[0] == "stopped"


def test_a_failure_after_an_earlier_end_is_told(tmp_path, write_run):
    folder = write_run(tmp_path / "run", log=STOPPED, result={}, changed=1000)
    assert run_status(folder)[0] == "finished"
    os.utime(folder / "training.log", (2000, 2000))
    assert run_status(folder)[0] == "failed"


@pytest.mark.skipif(sys.platform != "linux", reason="locks of other processes are seen on Linux alone")
def test_a_locked_run_is_running_whatever_it_left_before(tmp_path, write_run):
    folder = write_run(tmp_path / "run", log=STOPPED, result={})
    (folder / ".lock").touch()
    code = "import fcntl, sys; f = open(sys.argv[1], 'w'); fcntl.lockf(f, fcntl.LOCK_EX); print(flush=True); input()"
    holder = subprocess.Popen(
        [sys.executable, "-c", code, str(folder / ".lock")], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    )
    holder.stdout.readline()
    assert run_status(folder) == ("running", "")
    with (folder / ".lock").open("w") as file, pytest.raises(OSError):
        fcntl.lockf(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    holder.communicate("\n")
    assert run_status(folder) == ("finished", "")
