"""Which sampled tokens are the action.

Four strategies, the surest first; a mask outside `min_tokens` to `max_tokens` tokens leaves it to the next:

- `brace_depth` (1.0): the last complete JSON object, as `parse_action` reads it; or else the last balanced braces.
- `regex` (0.7): an object that names an action key but is cut off; the mask runs to the end of the reply.
- `last_n` (0.3): the reply shows an attempt (a brace or an action key) that neither could read. The mask runs from
  the first such sign to the end, widened to `min_tokens` or cut to the last `max_tokens`.
- `failed` (0.0): no sign of an action, or a reply shorter than `min_tokens`: an empty mask.

Everything works on the bytes of the sampled ids, never on text encoded again. Special tokens have no bytes and so are
never part of an action.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from lookact.errors import ConfigError
from lookact.text.actions import ANSWER_KEY, MOVE_KEYS
from lookact.text.objects import Span, brace_spans, last_object
from lookact.text.token_bytes import token_bytes

CONFIDENCE = {"brace_depth": 1.0, "regex": 0.7, "last_n": 0.3, "failed": 0.0}
"""How far each method's mask can be trusted."""

_MOVE_KEYS = "|".join(MOVE_KEYS)
_CUT_OFF = re.compile(rf"""\{{[^{{}}]*?["'](?:{_MOVE_KEYS}|{ANSWER_KEY})["']""")
_SIGN = re.compile(rf"""\{{|{_MOVE_KEYS}|["']{ANSWER_KEY}["']""")


@dataclass(frozen=True)
class ActionMask:
    """The tokens of an action, and how they were found."""

    mask: NDArray[np.bool_]
    """(u,) True on the action's tokens."""
    method: str
    """A key of `CONFIDENCE`."""
    confidence: float


def mask_action_tokens(
    token_ids: Sequence[int] | NDArray[np.int64], tokenizer: Any, *, min_tokens: int = 10, max_tokens: int = 100
) -> ActionMask:
    """The mask (u,) over one reply's sampled ids (u,) that covers exactly the tokens its action touches."""
    if not 1 <= min_tokens <= max_tokens:
        raise ConfigError(f"action tokens from {min_tokens} to {max_tokens}: need 1 <= min_tokens <= max_tokens")
    table = token_bytes(tokenizer)
    # a model's embedding may have more rows than its tokenizer has ids: those mean nothing
    pieces = [table[id] if 0 <= id < len(table) else b"" for id in np.asarray(token_ids, dtype=np.int64).tolist()]
    lengths = np.fromiter(map(len, pieces), dtype=np.int64, count=len(pieces))
    stops = np.cumsum(lengths)
    # Latin-1 makes one character of each byte, so positions in the text are positions in the bytes
    text = b"".join(pieces).decode("latin-1")
    for method, find in (("brace_depth", _balanced), ("regex", _cut_off)):
        span = find(text)
        if span is not None:
            mask = (lengths > 0) & (stops - lengths < span[1]) & (stops > span[0])
            if min_tokens <= mask.sum() <= max_tokens:
                return ActionMask(mask, method, CONFIDENCE[method])
    return _last_tokens(text, lengths, min_tokens, max_tokens)


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
