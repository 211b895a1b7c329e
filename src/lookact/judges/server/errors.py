"""Every refusal and failure as one line of JSON, in the shape that OpenAI's clients read."""

from __future__ import annotations

import json
from typing import Any

from fastapi import FastAPI, Request
from fastapi.exceptions import RequestValidationError
from starlette.exceptions import HTTPException
from starlette.responses import Response

from lookact.errors import EngineError
from lookact.judges.server.limits import Refused

KINDS = {401: "authentication_error", 429: "rate_limit_error"}


def error_response(status: int, message: str, headers: dict[str, str] | None = None) -> Response:
    """`{"error": {"message", "type", "code"}}`, whatever the message holds."""
    kind = KINDS.get(status, "invalid_request_error" if status < 500 else "server_error")
    line = " ".join(message.split())[:500]
    # ascii: a lone surrogate in a message must not break the answer
    body = json.dumps({"error": {"message": line, "type": kind, "code": status}}, ensure_ascii=True)
    return Response(body, status, headers, media_type="application/json")


def add_error_handlers(app: FastAPI) -> None:
    """Answer everything that can be raised while a request is handled."""

    @app.exception_handler(Refused)
    async def refuse(request: Request, error: Refused) -> Response:
        return error_response(error.status, str(error), error.headers)

    @app.exception_handler(RequestValidationError)
    async def invalid(request: Request, error: RequestValidationError) -> Response:
        # of the branches of a union, the one that got furthest is what was meant
        worst = max(error.errors(), key=lambda each: len(each["loc"]))
        if worst["type"] == "json_invalid":
            return error_response(400, f"the body is not JSON: {worst.get('ctx', {}).get('error', worst['msg'])}")
        return error_response(422, f"{place(worst['loc'])}: {worst['msg']}")

    @app.exception_handler(HTTPException)
    async def http(request: Request, error: HTTPException) -> Response:
        return error_response(error.status_code, str(error.detail), dict(error.headers or {}))

    @app.exception_handler(EngineError)
    async def engine(request: Request, error: EngineError) -> Response:
        return error_response(500, str(error))

    @app.exception_handler(Exception)
    async def anything(request: Request, error: Exception) -> Response:
        return error_response(500, f"the server failed: {type(error).__name__}")


def place(location: tuple[Any, ...]) -> str:
    """Where in the body a value stands, as in messages.0.content."""
    named = [str(part) for part in location if part not in ("body", "str") and "[" not in str(part)]
    return ".".join(named) or "body"
