"""A reply cut into the tokens that were sampled, with those that count, for people to see what a loss saw."""

from __future__ import annotations

import codecs
from collections.abc import Iterator, Sequence
from functools import lru_cache
from pathlib import Path
from typing import Any

from lookact.errors import ConfigError
from lookact.text.actions import last_object, token_bytes
from lookact.viewer.folder import is_file

FILE = "tokenizer.json"
MAX_TOKENIZER = 64 << 20
KEPT_IN = (".", "tokenizer", "model", "best", "warm_start", "sft")
"""Where a folder of episodes, or the run around it, keeps a tokenizer."""
Piece = dict[str, Any]
"""`text`, and whether it `counts`."""


def find_tokenizer(root: Path, folder: Path) -> Path | None:
    """The nearest tokenizer file: beside the episodes, or in the folders around them up to the viewed one."""
    for around in (folder, *folder.parents):
        if not around.is_relative_to(root):
            return None
        for name in KEPT_IN:
            if is_file(around / name / FILE, MAX_TOKENIZER) and not (around / name).is_symlink():
                return around / name / FILE
    return None


def pieces_of(reply: str, ids: Sequence[int], mask: Sequence[bool], tokenizer: Path | None) -> tuple[list[Piece], bool]:
    """The reply in pieces, and whether they are its very tokens.

    Without the tokenizer that sampled them only the reply's last JSON object can be pointed out.
    """
    if tokenizer is not None:
        texts = list(token_texts(ids, *load_tokenizer(tokenizer)))
        if "".join(text for text, special in texts if not special).strip() == reply.strip():
            return [{"text": text, "counts": bool(count)} for (text, _), count in zip(texts, mask)], True
    found = last_object(reply) if any(mask) else None
    start, stop = found.span if found else (len(reply), len(reply))
    parts = ((reply[:start], False), (reply[start:stop], True), (reply[stop:], False))
    return [{"text": text, "counts": counts} for text, counts in parts if text], False


def token_texts(ids: Sequence[int], table: list[bytes], names: dict[int, str]) -> Iterator[tuple[str, bool]]:
    """Each token's text, and whether it is a special one; a character cut in two shows with its second half."""
    decoder = codecs.getincrementaldecoder("utf-8")(errors="replace")
    for id in ids:
        spelled = table[id] if 0 <= id < len(table) else b""
        yield (decoder.decode(spelled), False) if spelled else (names.get(id, f"<{id}>"), True)


@lru_cache(maxsize=4)
def load_tokenizer(path: Path) -> tuple[list[bytes], dict[int, str]]:
    """The bytes of each id, and the names of special ones; nothing for a tokenizer that is not byte-level."""
    from transformers import PreTrainedTokenizerFast

    try:
        tokenizer = PreTrainedTokenizerFast(tokenizer_file=str(path))
    except Exception:
        # tokenizers raises plain Exceptions for what it cannot read
        return [], {}
    try:
        table = token_bytes(tokenizer)
    except ConfigError:
        table = []
    return table, {id: str(token) for id, token in tokenizer.added_tokens_decoder.items()}
