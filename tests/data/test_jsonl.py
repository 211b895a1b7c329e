import pytest

from lookact.data.jsonl import append_row, drop_torn_line, read_objects, read_rows
from lookact.errors import DataError


def test_appended_rows_are_read_back(tmp_path):
    path = tmp_path / "rows.jsonl"
    append_row(path, {"a": 1})
    append_row(path, {"a": [2.5, None]}, durable=True)
    assert list(read_rows(path)) == [{"a": 1}, {"a": [2.5, None]}]


def test_a_line_that_is_no_object_is_named_with_the_remedy(tmp_path):
    path = tmp_path / "rows.jsonl"
    path.write_text('{"a": 1}\n\n[2]\n')
    with pytest.raises(DataError, match="line 3 is not a JSON object: begin again"):
        list(read_rows(path, remedy="begin again"))
    with pytest.raises(DataError, match="cannot be read"):
        list(read_rows(tmp_path / "none.jsonl"))


def test_a_torn_last_line_is_cut(tmp_path):
    path = tmp_path / "rows.jsonl"
    drop_torn_line(path)
    assert not path.exists()
    for content, left in ((b'{"a": 1}\n{"a"', b'{"a": 1}\n'), (b'{"a"', b""), (b"1\n", b"1\n")):
        path.write_bytes(content)
        drop_torn_line(path)
        assert path.read_bytes() == left


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
