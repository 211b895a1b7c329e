from count_lines import by_package, count, table

SOURCE = '''"""Head,
in two lines."""

import os  # the one import
from pathlib import (
    Path,
)

# why
SIZE = 3  # metres
"""A field's docstring."""


def place() -> str:
    """Where."""
    text = """
# no comment, and no docstring
"""
    return text + os.sep + str(Path(text))
'''


def test_each_line_is_of_one_kind():
    # docstrings 2 + 1 + 1, imports 1 + 3, blank 1 + 1 + 2, a comment, and of code SIZE, def, three of text and return
    assert count(SOURCE) == {
        "files": 1, "lines": 19, "docstrings": 4, "imports": 4, "blank": 4, "comments": 1, "code": 6,
    }  # fmt: skip


def test_packages_are_summed(tmp_path):
    (tmp_path / "ops").mkdir()
    for path in (tmp_path / "types.py", tmp_path / "ops" / "a.py", tmp_path / "ops" / "b.py"):
        path.write_text("x = 1\n\n")
    packages = by_package(tmp_path)
    assert packages == {
        ".": {"files": 1, "lines": 2, "blank": 1, "code": 1},
        "ops": {"files": 2, "lines": 4, "blank": 2, "code": 2},
    }
    assert table(packages, markdown=True).splitlines()[2:] == [
        "| ops | 2 | 4 | 2 | 0 | 0 | 0 | 2 |",
        "| . | 1 | 2 | 1 | 0 | 0 | 0 | 1 |",
        "| all | 3 | 6 | 3 | 0 | 0 | 0 | 3 |",
    ]
