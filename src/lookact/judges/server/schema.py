"""The bodies that the server takes and gives: the form of OpenAI's chat completions, and of the plain /generate.

A field that is not listed is refused, and so is a value that this server can't honour: nothing is ignored.
"""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import BeforeValidator, ConfigDict, Field, Strict
from pydantic.dataclasses import dataclass

LISTED = ConfigDict(extra="forbid")


def truth(value: object) -> object:
    """Refuses 0 where false is meant: the two are equal in Python, but not in JSON."""
    if not isinstance(value, bool):
        raise ValueError("Input should be true or false")
    return value


def plain_text(value: object) -> object:
    """Refuses a form that replies can't be held to."""
    if value != "text":
        raise ValueError("this server can't hold replies to a form: ask for JSON in the prompt, and check it")
    return value


WholeNumber = Annotated[int, Strict()]
Number = Annotated[float, Strict(), Field(allow_inf_nan=False)]
Zero = Annotated[Number, Field(ge=0, le=0)]
Flag = Annotated[bool, Strict()]
Off = Annotated[Literal[False], BeforeValidator(truth)]
StopWord = Annotated[str, Field(min_length=1, max_length=256)]


@dataclass(frozen=True, config=LISTED)
class TextPart:
    type: Literal["text"]
    text: str


@dataclass(frozen=True, config=LISTED)
class ImagePart:
    """Qwen's own form: a data URL, or bare base64."""

    type: Literal["image"]
    image: str


@dataclass(frozen=True, config=LISTED)
class ImageUrl:
    url: str
    detail: Literal["auto", "high"] | None = None
    """Images are never made coarser than the model's own pixel budget."""


@dataclass(frozen=True, config=LISTED)
class ImageUrlPart:
    """OpenAI's form: a data URL."""

    type: Literal["image_url"]
    image_url: ImageUrl


Part = Annotated[TextPart | ImagePart | ImageUrlPart, Field(discriminator="type")]


@dataclass(frozen=True, config=LISTED)
class ChatMessage:
    """The fields that must be null are those of a reply that clients send back as they got it."""

    role: Literal["system", "developer", "user", "assistant"]
    content: str | list[Part]
    refusal: None = None
    annotations: None = None
    audio: None = None
    function_call: None = None
    tool_calls: None = None
    reasoning_content: None = None


@dataclass(frozen=True, config=LISTED)
class GenerateRequest:
    """Temperature 0 is greedy and deterministic; above it, replies are drawn with top-p 0.9."""

    messages: Annotated[list[ChatMessage], Field(min_length=1)]
    max_tokens: Annotated[WholeNumber, Field(ge=1)] = 512
    temperature: Annotated[Number, Field(ge=0, le=2)] = 0.0
    seed: Annotated[WholeNumber, Field(ge=0, lt=2**63)] | None = None


@dataclass(frozen=True, config=LISTED)
class StreamOptions:
    include_usage: Flag | None = None


@dataclass(frozen=True, config=LISTED)
class ResponseFormat:
    type: Annotated[Literal["text"], BeforeValidator(plain_text)]


@dataclass(frozen=True, config=LISTED)
class ChatRequest:
    """What OpenAI's clients send; what this server cannot do is refused, not ignored."""

    messages: Annotated[list[ChatMessage], Field(min_length=1)]
    model: str | None = None
    """The name by which the server lists its model, if given."""
    max_tokens: Annotated[WholeNumber, Field(ge=1)] | None = None
    max_completion_tokens: Annotated[WholeNumber, Field(ge=1)] | None = None
    temperature: Annotated[Number, Field(ge=0, le=2)] | None = None
    top_p: Annotated[Number, Field(gt=0, le=1)] | None = None
    seed: Annotated[WholeNumber, Field(ge=0, lt=2**63)] | None = None
    n: Annotated[WholeNumber, Field(ge=1, le=16)] | None = None
    stop: StopWord | Annotated[list[StopWord], Field(max_length=16)] | None = None
    stream: Flag | None = None
    stream_options: StreamOptions | None = None
    logprobs: Flag | None = None
    top_logprobs: Annotated[WholeNumber, Field(ge=0, le=20)] | None = None
    response_format: ResponseFormat | None = None
    frequency_penalty: Zero | None = None
    presence_penalty: Zero | None = None
    logit_bias: Annotated[dict[str, Number], Field(max_length=0)] | None = None
    tools: Annotated[list[str], Field(max_length=0)] | None = None
    tool_choice: Literal["none", "auto"] | None = None
    store: Off | None = None
    user: str | None = None
    """Who asks; changes no reply."""


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
class TopLogprob:
    token: str
    logprob: float
    bytes: list[int]


@dataclass(frozen=True)
class ContentLogprob:
    """A token of the reply, with the likeliest ones in its place."""

    token: str
    logprob: float
    bytes: list[int]
    top_logprobs: list[TopLogprob]


@dataclass(frozen=True)
class ChoiceLogprobs:
    content: list[ContentLogprob]


@dataclass(frozen=True)
class Choice:
    message: ReplyMessage
    finish_reason: Literal["stop", "length"]
    index: int = 0
    logprobs: ChoiceLogprobs | None = None


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
