"""The bytes behind each token of a byte-level tokenizer, so that spans in a reply can be traced to sampled tokens."""

from __future__ import annotations

from functools import cache
from typing import Any
from weakref import WeakKeyDictionary

from lookact.errors import ConfigError

_tables: WeakKeyDictionary[Any, tuple[int, list[bytes]]] = WeakKeyDictionary()


def token_bytes(tokenizer: Any) -> list[bytes]:
    """The bytes of every id of a fast byte-level tokenizer; special tokens and unused ids have none.

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
    for token, id in vocabulary.items():
        if id not in special:
            # added tokens, such as <think>, stand in the vocabulary as plain text
            table[id] = token.encode() if id in added else _spelled(token)
    return table


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
