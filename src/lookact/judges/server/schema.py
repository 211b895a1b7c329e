"""The bodies that the server takes and gives: the form of OpenAI's chat completions, and of the plain /generate.

Fields that are not listed are ignored, as other servers do; a listed field of the wrong type is refused.
"""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import BeforeValidator, Field, Strict
from pydantic.dataclasses import dataclass


def truth(value: object) -> object:
    """Refuses 0 where false is meant: the two are equal in Python, but not in JSON."""
    if not isinstance(value, bool):
        raise ValueError("Input should be true or false")
    return value


WholeNumber = Annotated[int, Strict()]
Number = Annotated[float, Strict(), Field(allow_inf_nan=False)]
Off = Annotated[Literal[False], BeforeValidator(truth)]


@dataclass(frozen=True)
class TextPart:
    type: Literal["text"]
    text: str


@dataclass(frozen=True)
class ImagePart:
    """Qwen's own form: a data URL, or bare base64."""

    type: Literal["image"]
    image: str


@dataclass(frozen=True)
class ImageUrl:
    url: str


@dataclass(frozen=True)
class ImageUrlPart:
    """OpenAI's form: a data URL."""

    type: Literal["image_url"]
    image_url: ImageUrl


Part = Annotated[TextPart | ImagePart | ImageUrlPart, Field(discriminator="type")]


@dataclass(frozen=True)
class ChatMessage:
    role: Literal["system", "user", "assistant"]
    content: str | list[Part]


@dataclass(frozen=True)
class GenerateRequest:
    """Temperature 0 is greedy and deterministic; above it, replies are drawn with top-p 0.9."""

    messages: Annotated[list[ChatMessage], Field(min_length=1)]
    max_tokens: Annotated[WholeNumber, Field(ge=1)] = 512
    temperature: Annotated[Number, Field(ge=0, le=2)] = 0.0
    seed: Annotated[WholeNumber, Field(ge=0, lt=2**63)] | None = None


@dataclass(frozen=True)
class ChatRequest:
    """What OpenAI's clients send; what this server cannot do is refused, not ignored."""

    messages: Annotated[list[ChatMessage], Field(min_length=1)]
    model: str | None = None
    max_tokens: Annotated[WholeNumber, Field(ge=1)] | None = None
    max_completion_tokens: Annotated[WholeNumber, Field(ge=1)] | None = None
    temperature: Annotated[Number, Field(ge=0, le=2)] | None = None
    top_p: Annotated[Number, Field(gt=0, le=1)] | None = None
    seed: Annotated[WholeNumber, Field(ge=0, lt=2**63)] | None = None
    n: Annotated[WholeNumber, Field(ge=1, le=1)] | None = None
    stream: Off | None = None
    stop: None = None
    tools: None = None
    logprobs: Off | None = None


@dataclass(frozen=True)
class Usage:
    prompt_tokens: int
    completion_tokens: int
    total_tokens: int


@dataclass(frozen=True)
class GenerateResponse:
    text: str
    finish_reason: Literal["stop", "length"]
    usage: Usage


@dataclass(frozen=True)
class ReplyMessage:
    content: str
    role: Literal["assistant"] = "assistant"


@dataclass(frozen=True)
class Choice:
    message: ReplyMessage
    finish_reason: Literal["stop", "length"]
    index: int = 0


@dataclass(frozen=True)
class ChatResponse:
    id: str
    created: int
    model: str
    choices: list[Choice]
    usage: Usage
    object: Literal["chat.completion"] = "chat.completion"


@dataclass(frozen=True)
class ModelCard:
    id: str
    created: int
    object: Literal["model"] = "model"
    owned_by: str = "lookact"


@dataclass(frozen=True)
class ModelList:
    data: list[ModelCard]
    object: Literal["list"] = "list"


@dataclass(frozen=True)
class Health:
    status: Literal["ok"]
    waiting: int
    """Requests in the queue."""


@dataclass(frozen=True)
class ErrorDetail:
    message: str
    type: str
    code: int


@dataclass(frozen=True)
class ErrorResponse:
    error: ErrorDetail
