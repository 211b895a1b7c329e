"""Every reason for which a test may be skipped is told in docs/testing.md, with what runs it."""

import ast
import re
from pathlib import Path

import pytest

HERE = Path(__file__).parent
TABLE = [line for line in (HERE.parent / "docs/testing.md").read_text().splitlines() if line.startswith("| ")]


def reason_of(call):
    told = [keyword.value for keyword in call.keywords if keyword.arg == "reason"] or call.args
    return ast.literal_eval(told[0])


def find_reasons():
    """Reason to the places that give it."""
    places = {}
    for path in sorted(HERE.rglob("*.py")):
        text = path.read_text(encoding="utf-8")
        for node in ast.walk(ast.parse(text)) if "skip" in text else ():
            if isinstance(node, ast.Call) and re.fullmatch(r"pytest\..*skip(if)?", ast.unparse(node.func)):
                places.setdefault(reason_of(node), []).append(f"{path.relative_to(HERE)}:{node.lineno}")
    return places


REASONS = find_reasons()


@pytest.mark.parametrize("reason", REASONS)
def test_each_reason_has_a_row(reason):
    told = any(line.startswith(f"| {reason} |") for line in TABLE)
    assert told, f"{REASONS[reason]}: add '{reason}' to docs/testing.md"


def test_no_row_is_of_the_past():
    first = {line.split(" |")[0].removeprefix("| ") for line in TABLE}
    assert {told for told in first if not told.startswith("`")} == {"reason", "variable", *REASONS}
