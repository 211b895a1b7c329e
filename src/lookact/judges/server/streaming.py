"""A streamed reply as OpenAI's clients read it: server-sent events, each a chunk of the reply, and [DONE]."""

from __future__ import annotations

import json
import time
import uuid
from collections.abc import AsyncIterator
from dataclasses import asdict
from typing import Any

from lookact.errors import EngineError
from lookact.judges.server.batching import Reply
from lookact.judges.server.schema import Usage
from lookact.serving.limits import Refused
from lookact.serving.middleware import error_body

MEDIA_TYPE = "text/event-stream"


async def events(parts: AsyncIterator[Reply], *, model: str, usage: bool) -> AsyncIterator[str]:
    """The events of a reply whose parts hold all of its text so far; with `usage`, the last one counts tokens."""
    head = {"id": f"chatcmpl-{uuid.uuid4().hex}", "object": "chat.completion.chunk", "created": int(time.time())}
    head["model"] = model

    def chunk(delta: dict[str, str], finish: str | None = None) -> str:
        return event(head | {"choices": [{"index": 0, "delta": delta, "finish_reason": finish}]})

    sent, reply = 0, Reply()
    yield chunk({"role": "assistant", "content": ""})
    try:
        async for reply in parts:
            if len(reply.text) > sent:
                yield chunk({"content": reply.text[sent:]})
                sent = len(reply.text)
    except (Refused, EngineError) as error:
        # the status is sent already
        yield event(error_body(error.status if isinstance(error, Refused) else 500, str(error)))
        return
    yield chunk({}, reply.finish)
    if usage:
        counted = Usage(reply.prompt_tokens, reply.completion_tokens, reply.prompt_tokens + reply.completion_tokens)
        yield event(head | {"choices": [], "usage": asdict(counted)})
    yield "data: [DONE]\n\n"


def event(content: dict[str, Any]) -> str:
    return f"data: {json.dumps(content)}\n\n"
