import contextlib
import itertools
import json
import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from lookact.errors import ParseError
from lookact.text.actions import (
    brace_spans,
    last_object,
    parse_action,
    parse_json_object,
    parse_move_or_answer,
    reasoning_of,
)

JSON_VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(), inner, max_size=3),
    max_leaves=8,
)
# hypothesis draws strings of the loaded sources too: one that opens or ends a thought is another matter
OBJECTS = st.dictionaries(st.text(), JSON_VALUES, max_size=4).filter(lambda value: "think>" not in json.dumps(value))
MOVE = '{"rotation_angle_degrees": -30, "forward_meters": 0.75}'
PARSED = {"rotation_angle_degrees": -30.0, "forward_meters": 0.75}


@pytest.mark.parametrize(
    "text",
    [
        MOVE,
        f"I see a door.\n{MOVE}\nThat is all.",
        f"```json\n{MOVE}\n```",
        f'<think>maybe {{"rotation_angle_degrees": 5, "forward_meters": 1}}</think>{MOVE}',
        f'He said "{{ and left. {MOVE}',
        f"{MOVE} }} {{done}}",
        '{"rotation_angle_degrees": -30, "forward_meters": 0.75, "why": {"note": "a } in a \\" string"}}',
    ],
)
def test_action_in_every_surrounding(text):
    action = parse_action(text)
    assert action == PARSED
    assert all(type(value) is float for value in action.values())


@pytest.mark.parametrize(
    ("text", "line"),
    [
        ("", "no JSON object"),
        ("turn left", "no JSON object"),
        ('{"rotation_angle_degrees": 3, "forw', "no complete JSON object"),
        ("[1, 2]", "JSON list"),
        ("12", "JSON int"),
        ('{"rotation_angle_degrees": 3}', "no forward_meters"),
        ('{"forward_meters": 3}', "no rotation_angle_degrees"),
        ('{"rotation_angle_degrees": "3", "forward_meters": 1}', "give a number"),
        ('{"rotation_angle_degrees": true, "forward_meters": 1}', "give a number"),
        ('{"rotation_angle_degrees": null, "forward_meters": 1}', "give a number"),
        ('{"rotation_angle_degrees": [3], "forward_meters": 1}', "give a number"),
        ('{"rotation_angle_degrees": NaN, "forward_meters": 1}', "not a finite"),
        ('{"rotation_angle_degrees": 3, "forward_meters": -Infinity}', "not a finite"),
        ('{"rotation_angle_degrees": 3, "forward_meters": 1e999}', "not a finite"),
        ('{"rotation_angle_degrees": 3, "forward_meters": 1' + "0" * 350 + "}", "not a finite"),
        ('{"rotation_angle_degrees": 3, "forward_meters": 1' + "0" * 9000 + "}", "not a finite"),
    ],
)
def test_unreadable_actions_say_why_in_one_line(text, line):
    with pytest.raises(ParseError, match=line) as caught:
        parse_action(text)
    assert "\n" not in str(caught.value)


def test_the_last_object_counts_even_if_it_is_no_action():
    with pytest.raises(ParseError, match="no rotation_angle_degrees"):
        parse_action(f'{MOVE} and {{"done": true}}')


def test_extra_keys_are_dropped_from_moves_but_not_from_objects():
    text = '{"rotation_angle_degrees": 1, "forward_meters": 2, "speed": 3}'
    assert parse_action(text) == {"rotation_angle_degrees": 1.0, "forward_meters": 2.0}
    assert parse_json_object(text)["speed"] == 3


def test_move_or_answer():
    assert parse_move_or_answer('so {"answer": "B"}') == {"answer": "B"}
    assert parse_move_or_answer('{"answer": 3}') == {"answer": "3"}
    assert parse_move_or_answer('{"answer": 2.5}') == {"answer": "2.5"}
    assert parse_move_or_answer(MOVE) == PARSED


def test_answer_wins_over_a_move_unless_it_is_empty():
    both = '{"rotation_angle_degrees": -30, "forward_meters": 0.75, "answer": %s}'
    assert parse_move_or_answer(both % '"A"') == {"answer": "A"}
    assert parse_move_or_answer(both % "null") == PARSED
    assert parse_move_or_answer(both % '""') == PARSED


@pytest.mark.parametrize("answer", ["true", "[1]", "{}"])
def test_answers_of_the_wrong_type(answer):
    with pytest.raises(ParseError, match="give a text or a number"):
        parse_move_or_answer(f'{{"answer": {answer}}}')


def test_reasoning_is_what_stands_before_the_action():
    assert reasoning_of(f" I turn.\n```json\n{MOVE}\n```") == "I turn."
    assert reasoning_of(f"{MOVE} because") == ""
    assert reasoning_of("  just words ") == "just words"


@given(st.text() | st.text(alphabet='{}[]":,0123456789eE.-+ \\natrufls\n', max_size=80))
def test_arbitrary_text_parses_or_raises_parse_error(text):
    reasoning_of(text)
    for parse in (parse_json_object, parse_action, parse_move_or_answer):
        with contextlib.suppress(ParseError):
            assert isinstance(parse(text), dict)


@given(st.floats(allow_nan=False, allow_infinity=False), st.integers(-(10**30), 10**30), st.text())
def test_any_finite_numbers_come_back(rotation, forward, reasoning):
    action = parse_action(f'{reasoning}\n{{"rotation_angle_degrees": {rotation!r}, "forward_meters": {forward}}}')
    assert action == {"rotation_angle_degrees": rotation, "forward_meters": float(forward)}
    assert all(math.isfinite(value) for value in action.values())


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
