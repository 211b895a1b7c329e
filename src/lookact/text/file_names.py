"""The one place where an id becomes the name of a file (ids may come from files that others wrote), and the cache."""

from __future__ import annotations

import hashlib
import os
import re
from pathlib import Path

MAX_BYTES = 180
"""Leaves room in a file system's 255 for what writers put behind it."""
_UNSAFE = re.compile(r"[/\\%\x00-\x1f\x7f\ud800-\udfff]|^\.")


def file_name(id: str) -> str:
    """A name for `id` that stays in its folder; ids without slashes, control characters or a leading dot are their own.

    Different ids have different names: what cannot stand in a name is written as %XX, and one that is too long ends in
    its hash.
    """
    name = _UNSAFE.sub(lambda found: "".join(f"%{byte:02X}" for byte in _bytes(found[0])), id)
    if name and len(_bytes(name)) <= MAX_BYTES:
        return name
    start = _bytes(name)[: MAX_BYTES - 40].decode(errors="ignore")
    return f"{start}%{hashlib.sha256(_bytes(id)).hexdigest()[:32]}"


def cache_folder() -> Path:
    """LOOKACT_CACHE, else lookact in the user's cache folder."""
    own, shared = os.environ.get("LOOKACT_CACHE"), os.environ.get("XDG_CACHE_HOME")
    return Path(own) if own else (Path(shared) if shared else Path.home() / ".cache") / "lookact"


def _bytes(text: str) -> bytes:
    return text.encode("utf-8", errors="surrogatepass")
