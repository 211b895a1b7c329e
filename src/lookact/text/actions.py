"""Actions in a reply: reading them, and finding the sampled tokens that spell them.

The last complete JSON object counts, whatever reasoning stands around it; a thought (`<think>`) is no place for an
action. Every character that matters to JSON's
structure is ASCII, so the same functions serve text and bytes read as Latin-1.

`mask_action_tokens` tries four strategies, the surest first; a mask outside `min_tokens` to `max_tokens` tokens leaves
it to the next, but a move, an answer or a word that was read may be shorter:

- `brace_depth` (1.0): the last complete JSON object, as `parse_action` reads it; or else the last balanced braces.
- `regex` (0.7): an object that names an action key but is cut off; the mask runs to the end of the reply.
- `last_n` (0.3): the reply shows an attempt (a brace or an action key) that neither could read. The mask runs from
  the first such sign to the end, widened to `min_tokens` or cut to the last `max_tokens`.
- `failed` (0.0): no sign of an action, or a reply shorter than `min_tokens`: an empty mask.

Masks work on the bytes of the sampled ids, never on text encoded again. Special tokens have no bytes and so are never
part of an action.
"""

from __future__ import annotations

import json
import math
import re
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache
from typing import Any
from weakref import WeakKeyDictionary

import numpy as np
from numpy.typing import NDArray

from lookact.errors import ConfigError, ParseError
from lookact.text.chat import THOUGHT_END

MOVE_KEYS = ("rotation_angle_degrees", "forward_meters")
ANSWER_KEY = "answer"
WORD_KEY = "action"
"""Where a reply names an action that is one of a few words: {"action": "left"}."""
CONFIDENCE = {"brace_depth": 1.0, "regex": 0.7, "last_n": 0.3, "failed": 0.0}
"""How far each masking strategy can be trusted."""
Span = tuple[int, int]
"""First character, and the one after the last."""

_FENCE = re.compile(r"```\w*\s*\Z")
_OPENING = re.compile(r'\{(?=[ \t\r\n]*["}])')
_STRUCTURE = re.compile(r'\\.|[{}"\n]', re.DOTALL)
_MOVE_KEYS = "|".join(MOVE_KEYS)
_CUT_OFF = re.compile(rf"""\{{[^{{}}]*?["'](?:{_MOVE_KEYS}|{ANSWER_KEY})["']""")
_SIGN = re.compile(rf"""\{{|{_MOVE_KEYS}|["']{ANSWER_KEY}["']""")
_BYTE = re.compile("<0x([0-9A-F]{2})>")
_tables: WeakKeyDictionary[Any, tuple[int, list[bytes]]] = WeakKeyDictionary()


def parse_json_object(text: str) -> dict[str, Any]:
    """The reply's last complete JSON object. Raises ParseError if there is none."""
    found = last_object(text)
    if found is None:
        raise ParseError(_why_none(text))
    return found.value


def parse_action(text: str) -> dict[str, float]:
    """The move a reply asks for, as finite floats under `MOVE_KEYS`; other keys are dropped. Raises ParseError."""
    return _move(parse_json_object(text))


def parse_move_or_answer(text: str) -> dict[str, Any]:
    """`{"answer": str}` if the reply answers, else its move as in `parse_action`. Raises ParseError.

    An answer ends the episode, so it wins over a move in the same object; a null or empty answer is none.
    """
    value = parse_json_object(text)
    answer = value.get(ANSWER_KEY)
    if answer is None or answer == "":
        return {**_move(value)}
    if isinstance(answer, bool) or not isinstance(answer, str | int | float):
        raise ParseError(f"{ANSWER_KEY} is {_shown(answer)}: give a text or a number")
    return {ANSWER_KEY: str(answer)}


def reasoning_of(text: str) -> str:
    """What stands before the action, without the code fence that opens it; all of the reply if it has no action."""
    found = last_object(text)
    if found is None:
        return text.strip()
    return _FENCE.sub("", text[: found.span[0]]).strip()


def _move(value: dict[str, Any]) -> dict[str, float]:
    return {key: _finite(value, key) for key in MOVE_KEYS}


def _finite(value: dict[str, Any], key: str) -> float:
    if key not in value:
        raise ParseError(f"the action has no {key}: it holds {_shown(sorted(value))}")
    number = value[key]
    if isinstance(number, bool) or not isinstance(number, int | float):
        raise ParseError(f"{key} is {_shown(number)}: give a number")
    try:
        finite = float(number)
    except OverflowError:
        finite = math.inf
    if not math.isfinite(finite):
        raise ParseError(f"{key} is not a finite number: {_shown(number)}")
    return finite


def _why_none(text: str) -> str:
    """One line on why no object was found."""
    if "{" in text:
        return f"no complete JSON object: it is cut off or malformed after {_shown(text[text.rfind('{') :])}"
    try:
        kind = type(json.loads(text)).__name__
    except (ValueError, RecursionError):
        return f"no JSON object in the reply: it ends with {_shown(text[-60:])}"
    return f"the reply is a JSON {kind}: give an object in braces"


def _shown(value: Any) -> str:
    """A short repr on one line; safe for numbers too long to print."""
    try:
        shown = repr(value)
    except (ValueError, RecursionError):
        shown = f"a {type(value).__name__} too large to print"
    return shown if len(shown) <= 60 else f"{shown[:57]}..."


@dataclass(frozen=True)
class FoundObject:
    """A complete JSON object and where it stands."""

    span: Span
    value: dict[str, Any]


def _integer(digits: str) -> int | float:
    # Python refuses to read integers of more than 4,300 digits; as a float they are simply infinite
    return int(digits) if len(digits) < 400 else float(digits)


_DECODER = json.JSONDecoder(parse_int=_integer)


def last_object(text: str) -> FoundObject | None:
    """The last complete JSON object that is not part of another complete one, or None.

    A brace that opens no valid object is stepped over, so stray braces and quotes in the reasoning do no harm.
    """
    found, opening = None, _OPENING.search(text, thought_end(text))
    while opening:
        start = opening.start()
        try:
            value, stop = _DECODER.raw_decode(text, start)
        except (ValueError, RecursionError):
            stop = start + 1
        else:
            found = FoundObject((start, stop), value)
        opening = _OPENING.search(text, stop)
    return found


def thought_end(text: str, *, thinking: bool = False) -> int:
    """Where the reply begins after its thought; its end while it still thinks. `thinking`: the prompt opened one."""
    closed = text.rfind(THOUGHT_END)
    begin = 0 if closed < 0 else closed + len(THOUGHT_END)
    return len(text) if (thinking and closed < 0) or "<think>" in text[begin:] else begin


def brace_spans(text: str) -> tuple[list[Span], list[int]]:
    """The outermost balanced `{...}` of text that need not be valid JSON, and the starts of braces never closed.

    Braces inside strings don't count; a string ends at a newline at the latest, as in JSON.
    """
    closed: list[Span] = []
    unclosed: list[int] = []
    in_string = False
    for match in _STRUCTURE.finditer(text):
        mark, at = match.group(), match.start()
        if mark == '"':
            in_string = bool(unclosed) and not in_string
        elif mark == "\n":
            in_string = False
        elif mark == "{" and not in_string:
            unclosed.append(at)
        elif mark == "}" and not in_string and unclosed:
            start = unclosed.pop()
            while closed and closed[-1][0] > start:
                closed.pop()
            closed.append((start, at + 1))
    return closed, unclosed


@dataclass(frozen=True)
class ActionMask:
    """The tokens of an action, and how they were found."""

    mask: NDArray[np.bool_]
    """(u,) True on the action's tokens."""
    method: str
    """A key of `CONFIDENCE`."""
    confidence: float


def mask_action_tokens(
    token_ids: Sequence[int] | NDArray[np.int64],
    tokenizer: Any,
    *,
    min_tokens: int = 10,
    max_tokens: int = 100,
    thinking: bool = False,
) -> ActionMask:
    """The mask (u,) over one reply's sampled ids (u,) that covers exactly the tokens its action touches.

    `thinking` says that the prompt opened a thought: the action stands after it.
    """
    if not 1 <= min_tokens <= max_tokens:
        raise ConfigError(f"action tokens from {min_tokens} to {max_tokens}: need 1 <= min_tokens <= max_tokens")
    table = token_bytes(tokenizer)
    # a model's embedding may have more rows than its tokenizer has ids: those mean nothing
    pieces = [table[id] if 0 <= id < len(table) else b"" for id in np.asarray(token_ids, dtype=np.int64).tolist()]
    lengths = np.fromiter(map(len, pieces), dtype=np.int64, count=len(pieces))
    stops = np.cumsum(lengths)
    # Latin-1 makes one character of each byte, so positions in the text are positions in the bytes
    text = b"".join(pieces).decode("latin-1")
    begin = thought_end(text, thinking=thinking)
    text = " " * begin + text[begin:]
    for method, find in (("brace_depth", _balanced), ("regex", _cut_off)):
        span = find(text)
        if span is not None:
            mask = (lengths > 0) & (stops - lengths < span[1]) & (stops > span[0])
            fewest = 1 if method == "brace_depth" and _is_action(text[span[0] : span[1]]) else min_tokens
            if fewest <= mask.sum() <= max_tokens:
                return ActionMask(mask, method, CONFIDENCE[method])
    return _last_tokens(text, lengths, min_tokens, max_tokens)


def _is_action(text: str) -> bool:
    """Whether the text is a move, an answer, or the word of an action."""
    try:
        return isinstance(parse_json_object(text).get(WORD_KEY), str) or bool(parse_move_or_answer(text))
    except ParseError:
        return False


def _balanced(text: str) -> Span | None:
    found = last_object(text)
    if found is not None:
        return found.span
    closed, _ = brace_spans(text)
    return closed[-1] if closed else None


def _cut_off(text: str) -> Span | None:
    """From the last brace that is never closed and leads to an action key, to the end."""
    _, unclosed = brace_spans(text)
    for start in reversed(unclosed):
        if _CUT_OFF.match(text, start):
            return start, len(text.rstrip(" \t\r\n"))
    return None


def _last_tokens(text: str, lengths: NDArray[np.int64], min_tokens: int, max_tokens: int) -> ActionMask:
    mask = np.zeros(len(lengths), dtype=np.bool_)
    spoken = np.flatnonzero(lengths)
    sign = _SIGN.search(text)
    if sign is None or len(spoken) < min_tokens:
        return ActionMask(mask, "failed", CONFIDENCE["failed"])
    attempted = int((np.cumsum(lengths[spoken]) > sign.start()).sum())
    mask[spoken[-min(max(attempted, min_tokens), max_tokens) :]] = True
    return ActionMask(mask, "last_n", CONFIDENCE["last_n"])


def token_bytes(tokenizer: Any) -> list[bytes]:
    """The bytes of every id of a byte-level or a SentencePiece tokenizer; special tokens and unused ids have none.

    Built once per tokenizer, and again if its vocabulary grew. Raises ConfigError for other kinds of tokenizer.
    """
    size, table = _tables.get(tokenizer, (-1, []))
    if size != len(tokenizer):
        table = _build(tokenizer)
        _tables[tokenizer] = len(tokenizer), table
    return table


def _build(tokenizer: Any) -> list[bytes]:
    vocabulary: dict[str, int] = tokenizer.get_vocab()
    added = tokenizer.added_tokens_decoder
    special = {*tokenizer.all_special_ids, *(id for id, token in added.items() if token.special)}
    table = [b""] * (max(vocabulary.values(), default=-1) + 1)
    spelled = _spelled_with_spaces if "<0x00>" in vocabulary else _spelled
    for token, id in vocabulary.items():
        if id not in special:
            # added tokens, such as <think>, stand in the vocabulary as plain text
            table[id] = token.encode() if id in added else spelled(token)
    return table


def _spelled_with_spaces(token: str) -> bytes:
    """The bytes a SentencePiece token spells: ▁ is a space, <0x0A> a byte."""
    byte = _BYTE.fullmatch(token)
    return bytes.fromhex(byte[1]) if byte else token.replace("▁", " ").encode()


def _spelled(token: str) -> bytes:
    """The bytes a byte-level token spells, one printable character a byte."""
    try:
        return bytes(map(_byte_of_character().__getitem__, token))
    except KeyError:
        raise ConfigError(f"token {token!r} is not byte-level: action masks need a tokenizer like Qwen's") from None


@cache
def _byte_of_character() -> dict[str, int]:
    """GPT-2's alphabet: printable Latin-1 bytes stand for themselves, the others for 256 and up, in order."""
    printable = [*range(0x21, 0x7F), *range(0xA1, 0xAD), *range(0xAE, 0x100)]
    others = [byte for byte in range(256) if byte not in printable]
    return {chr(byte): byte for byte in printable} | {chr(256 + i): byte for i, byte in enumerate(others)}
