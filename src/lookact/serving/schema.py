"""What every server's refusal looks like."""

from __future__ import annotations

from pydantic.dataclasses import dataclass


@dataclass(frozen=True)
class ErrorDetail:
    message: str
    type: str
    code: int


@dataclass(frozen=True)
class ErrorResponse:
    error: ErrorDetail
