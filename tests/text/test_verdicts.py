import contextlib

import pytest
from hypothesis import given
from hypothesis import strategies as st

from lookact.errors import ParseError
from lookact.text.verdicts import parse_verdict, strip_think


@pytest.mark.parametrize(
    ("text", "verdict"),
    [
        ("0", 0),
        ("1", 1),
        ("-1", -1),
        ("−1", -1),
        (" 1.\n", 1),
        ("Label: 0", 0),
        ("Answer:-1", -1),
        ("**1**", 1),
        ("either 1 or -1, so -1", -1),
        ("0 is better than 1", 0),
        ("The score 0.5 is below 10, so 1", 1),
        ("<think>0 or -1?</think>1", 1),
        ("it was 0 at first</think>\n1", 1),
        ("I am uncertain.", -1),
        ("I can't tell", -1),
        ("I can’t tell", -1),
        ("They are equal.", -1),
        ("No preference", -1),
        ("There is no clear difference.", -1),
        ("Both look THE SAME", -1),
    ],
)
def test_verdicts(text, verdict):
    assert parse_verdict(text) == verdict


@pytest.mark.parametrize("text", ["", "the second one", "10", "0.5", "unequalled", "<think>1</think>", "<think>1"])
def test_unreadable_verdicts_raise_rather_than_abstain(text):
    with pytest.raises(ParseError, match="no verdict"):
        parse_verdict(text)


@pytest.mark.parametrize(
    ("text", "spoken"),
    [
        ("plain", "plain"),
        ("<think>a</think> b", "b"),
        ("x <think>a</think>y<think>b</think> z", "x y z"),
        ("<think>a<think>b</think>c</think>d", "d"),
        ("a <think>never closed", "a"),
        ("never opened</think> d", "d"),
        ("<THINK>a</Think>b", "b"),
        ("<think>a</think>b</think>c", "c"),
        ("", ""),
    ],
)
def test_thinking_is_stripped(text, spoken):
    assert strip_think(text) == spoken


PIECES = st.lists(st.sampled_from(["<think>", "</think>", "-1", "0", "1", " ", "equal", "x", "\n"]), max_size=12)


@given(PIECES.map("".join) | st.text())
def test_any_text_gives_a_verdict_or_parse_error(text):
    with contextlib.suppress(ParseError):
        assert parse_verdict(text) in (0, 1, -1)


@given(st.text(alphabet=st.characters(exclude_characters="<")), st.sampled_from([0, 1, -1]))
def test_thoughts_never_change_the_verdict(thought, verdict):
    assert parse_verdict(f"<think>{thought}</think>{verdict}") == verdict
