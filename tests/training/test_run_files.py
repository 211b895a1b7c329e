import subprocess
import sys

import pytest

from lookact.training.run_files import is_locked


@pytest.mark.skipif(sys.platform != "linux", reason="locks of other processes are seen on Linux alone")
def test_a_lock_is_seen_while_its_process_lives(tmp_path):
    assert not is_locked(tmp_path)
    (tmp_path / ".lock").touch()
    assert not is_locked(tmp_path)
    code = "import fcntl, sys; f = open(sys.argv[1], 'w'); fcntl.lockf(f, fcntl.LOCK_EX); print(flush=True); input()"
    holder = subprocess.Popen(
        [sys.executable, "-c", code, str(tmp_path / ".lock")], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    )
    assert holder.stdout.readline() == "\n"
    assert is_locked(tmp_path)
    holder.communicate("\n")
    assert not is_locked(tmp_path)
