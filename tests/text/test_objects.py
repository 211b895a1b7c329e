import itertools
import json

from hypothesis import given
from hypothesis import strategies as st

from lookact.text.objects import brace_spans, last_object

JSON_VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(), inner, max_size=3),
    max_leaves=8,
)
OBJECTS = st.dictionaries(st.text(), JSON_VALUES, max_size=4)


def test_last_of_several_objects():
    text = 'first {"a": 1} then {"b": {"c": 2}} done'
    found = last_object(text)
    assert found.value == {"b": {"c": 2}}
    assert text[slice(*found.span)] == '{"b": {"c": 2}}'


def test_object_inside_an_unclosed_brace():
    assert last_object('set {of things, say "x {"a": 1}').value == {"a": 1}


def test_braces_and_quotes_inside_strings():
    text = r'{"a": "}{ \" }", "b": "\\"}'
    found = last_object(text)
    assert found.span == (0, len(text))
    assert found.value == {"a": '}{ " }', "b": "\\"}


def test_no_object():
    assert last_object("") is None
    assert last_object("{'a': 1}") is None
    assert last_object('{"a": 1') is None


def test_deep_nesting_and_long_numbers_do_not_raise():
    assert last_object('{"a":' * 3000) is None
    assert last_object('{"a": ' + "9" * 5000 + "}").value["a"] == float("inf")


def test_brace_spans_keeps_the_outermost():
    closed, unclosed = brace_spans("{a {b} c} {d}")
    assert closed == [(0, 9), (10, 13)]
    assert unclosed == []


def test_brace_spans_of_unclosed_braces():
    closed, unclosed = brace_spans("{x {y {z} {w}")
    assert closed == [(6, 9), (10, 13)]
    assert unclosed == [0, 3]


def test_brace_spans_ignores_strings_until_the_line_ends():
    assert brace_spans('{"}" }') == ([(0, 6)], [])
    assert brace_spans('{"\n}') == ([(0, 4)], [])
    assert brace_spans('say "{}"') == ([(5, 7)], [])


@given(st.text(alphabet='{}"\\\n a', max_size=60))
def test_brace_spans_are_ordered_disjoint_and_braced(text):
    closed, unclosed = brace_spans(text)
    assert all(text[start] == "{" and text[stop - 1] == "}" for start, stop in closed)
    assert all(first[1] <= second[0] for first, second in itertools.pairwise(closed))
    assert all(text[start] == "{" for start in unclosed)


@given(OBJECTS, st.booleans())
def test_any_object_survives_its_surroundings(value, ascii_only):
    written = json.dumps(value, ensure_ascii=ascii_only)
    found = last_object(f'I {{think}} "so": ```json\n{written}\n``` }} done "')
    assert found.value == value


@given(OBJECTS)
def test_spans_in_bytes_match_spans_in_text(value):
    written = json.dumps(value, ensure_ascii=False).encode("utf-8", "surrogatepass")
    found = last_object((b"caf\xc3\xa9 " + written + b" fin").decode("latin-1"))
    assert found.span == (6, 6 + len(written))
