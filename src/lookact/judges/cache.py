"""Replies on disk, found again by what was asked: a rerun costs no request.

An entry is one file, written under another name and renamed; one that is torn or belongs to another key is ignored.
"""

from __future__ import annotations

import hashlib
import json
import os
import threading
from collections.abc import Callable
from concurrent.futures import Future
from pathlib import Path

import numpy as np

from lookact.judges.encoding import Content


def request_key(model: str, content: Content, max_tokens: int) -> str:
    """A name for a request by all that decides its reply: the model, the texts, the images and the limit."""
    digest = hashlib.blake2b(digest_size=20)
    for name in (model, str(max_tokens)):
        digest.update(f"{len(name.encode())}:".encode() + name.encode())
    for part in content:
        if isinstance(part, str):
            digest.update(f"text {len(part.encode())}:".encode() + part.encode())
        else:
            digest.update(f"image {part.shape} {part.dtype}:".encode() + np.ascontiguousarray(part).tobytes())
    return digest.hexdigest()


class ReplyCache:
    """A folder of replies; safe to use from many threads and processes."""

    def __init__(self, folder: Path | str) -> None:
        self.folder = Path(folder)
        self._lock = threading.Lock()
        self._asking: dict[str, Future[str]] = {}

    def recall(self, key: str, ask: Callable[[], str]) -> str:
        """The reply kept under `key`, else that of `ask`, kept; a key asked by two threads at once is asked once."""
        kept = self.load(key)
        if kept is not None:
            return kept
        with self._lock:
            other = self._asking.get(key)
            mine = self._asking.setdefault(key, Future())
        if other is not None:
            return other.result()
        try:
            # another thread may have finished between the look and the claim
            kept = self.load(key)
            reply = ask() if kept is None else kept
            if kept is None:
                self.store(key, reply)
            mine.set_result(reply)
        except BaseException as error:
            mine.set_exception(error)
            raise
        finally:
            with self._lock:
                del self._asking[key]
        return reply

    def load(self, key: str) -> str | None:
        """The reply under `key`, or None where there is none that can be trusted."""
        try:
            entry = json.loads(self._path(key).read_text(encoding="utf-8"))
        except (OSError, ValueError):
            return None
        if not isinstance(entry, dict) or entry.get("key") != key or not isinstance(entry.get("reply"), str):
            return None
        return str(entry["reply"])

    def store(self, key: str, reply: str) -> None:
        path = self._path(key)
        path.parent.mkdir(parents=True, exist_ok=True)
        temporary = path.with_name(f".{path.name}-{os.getpid()}-{threading.get_ident()}")
        temporary.write_text(json.dumps({"key": key, "reply": reply}), encoding="utf-8")
        temporary.replace(path)

    def _path(self, key: str) -> Path:
        return self.folder / key[:2] / f"{key}.json"
