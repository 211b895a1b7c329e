"""Reachability check of an address, in seconds."""

from __future__ import annotations

import socket
from urllib.parse import urlsplit

SECONDS = 5.0
"""For a connection; a host that drops packets answers nothing at all."""
PORTS = {"http": 80, "https": 443, "ray": 10001}


def is_reachable(address: str, *, seconds: float = SECONDS) -> bool:
    """Whether HOST:PORT, or the host and port of a URL, takes a connection."""
    try:
        parts = urlsplit(address if "://" in address else f"tcp://{address}")
        port = parts.port or PORTS.get(parts.scheme)
        if parts.hostname is None or port is None:
            return False
        socket.create_connection((parts.hostname, port), timeout=seconds).close()
    except (OSError, ValueError):
        return False
    return True
