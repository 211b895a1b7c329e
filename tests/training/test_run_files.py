import subprocess
import sys

import pytest

from lookact.training.run_files import is_locked, read_objects


def test_lines_are_read_as_they_come(tmp_path):
    path = tmp_path / "metrics.jsonl"
    path.write_bytes(b'{"step": 1}\n{"step": 2, "a')
    assert read_objects(path) == ([{"step": 1}], 12)
    path.write_bytes(b'{"step": 1}\n{"step": 2, "a": 3}\n{"st')
    assert read_objects(path, 12) == ([{"step": 2, "a": 3}], 32)
    assert read_objects(path, 32) == ([], 32)


def test_a_whole_last_line_without_its_end_is_taken_once(tmp_path):
    path = tmp_path / "metrics.jsonl"
    path.write_bytes(b'{"step": 1}')
    assert read_objects(path) == ([{"step": 1}], 11)
    path.write_bytes(b'{"step": 1}\n{"step": 2}\n')
    assert read_objects(path, 11) == ([{"step": 2}], 24)


def test_a_number_cut_in_two_is_not_taken_for_whole(tmp_path):
    path = tmp_path / "m.jsonl"
    path.write_bytes(b"1\n12")
    assert read_objects(path) == ([1], 2)


def test_what_is_no_json_is_none_and_a_byte_order_mark_is_passed_over(tmp_path):
    path = tmp_path / "m.jsonl"
    path.write_bytes(b'\xef\xbb\xbf{"step": 1}\n{torn\n\n\xff\n')
    assert read_objects(path)[0] == [{"step": 1}, None, None, None]


def test_a_bound_on_bytes_never_cuts_a_line(tmp_path):
    path = tmp_path / "m.jsonl"
    path.write_bytes(b'{"a": 1}\n{"a": 2}\n{"a": 3}\n')
    values, offset = read_objects(path, most=10)
    assert (values, offset) == ([{"a": 1}], 9)
    assert read_objects(path, offset, most=18) == ([{"a": 2}, {"a": 3}], 27)


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
