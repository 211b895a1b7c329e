"""How much a server takes on: sizes, counts and seconds, each refused with a status code of its own when passed."""

from __future__ import annotations

from dataclasses import dataclass, fields

from lookact.errors import ConfigError

MIB = 1 << 20


@dataclass(frozen=True)
class Limits:
    """Bounds of one request and of all requests together."""

    body_bytes: int = 64 * MIB
    """Room for 32 frames of 640x480 pixels as PNG, whatever they show."""
    image_bytes: int = 8 * MIB
    image_pixels: int = 4096 * 4096
    images: int = 64
    messages: int = 64
    json_tokens: int = 16384
    """Strings, commas and brackets of a body, counted before it is parsed: a million empty parts would take half
    a gigabyte."""
    request_pixels: int = 2 * 4096 * 4096
    """Pixels of all images of a request."""
    text_characters: int = 100_000
    max_tokens: int = 1024
    batch: int = 16
    """Requests answered together."""
    batch_wait: float = 0.005
    """Seconds that a request waits for others to join it while the model is idle."""
    queue: int = 128
    """Requests waiting; one more is answered 429."""
    held_bytes: int = 1024 * MIB
    """Bodies and images of all requests under way, as what they take in memory; more is answered 429."""
    request_seconds: float = 120.0
    body_seconds: float = 20.0
    header_seconds: float = 10.0
    """A connection may be silent, or half-way through its headers, this long."""
    connections: int = 512

    def __post_init__(self) -> None:
        for bound in fields(self):
            value = getattr(self, bound.name)
            if not value > 0 and bound.name != "batch_wait":
                raise ConfigError(f"{bound.name} is {value}: it must be above 0")


class Refused(Exception):
    """A request is turned away: the status code says why, the message how to mend it."""

    def __init__(self, status: int, message: str, *, retry_after: int | None = None) -> None:
        super().__init__(message)
        self.status, self.retry_after = status, retry_after

    @property
    def headers(self) -> dict[str, str]:
        return {} if self.retry_after is None else {"Retry-After": str(self.retry_after)}


class Budget:
    """Bytes held for all requests together; for the event loop's thread only."""

    def __init__(self, total: int) -> None:
        self.total, self.held = total, 0

    def hold(self, size: int) -> None:
        if self.held + size > self.total:
            raise Refused(429, "the server holds as much as it can: try again later", retry_after=1)
        self.held += size

    def release(self, size: int) -> None:
        self.held -= size
