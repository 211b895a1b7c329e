"""From a request's messages to a prompt for the model, everything checked on the way."""

from __future__ import annotations

import secrets
from collections.abc import Sequence

from PIL import Image as Pillow

from lookact.judges.server.images import decode_image, image_bytes, open_image
from lookact.judges.server.limits import Limits, Refused
from lookact.judges.server.records import Message, Prompt
from lookact.judges.server.schema import ChatMessage, ChatRequest, GenerateRequest, ImagePart, Part, TextPart

MAX_TOKENS, TOP_P = 512, 0.9
Opened = tuple[tuple[ChatMessage, tuple[str | Pillow.Image, ...]], ...]
"""Messages whose images have only their headers read."""


def open_messages(messages: Sequence[ChatMessage], limits: Limits) -> Opened:
    """Each message with its texts and opened images, once counts and sizes are found to be within the limits."""
    if len(messages) > limits.messages:
        raise Refused(422, f"{len(messages)} messages: send at most {limits.messages}")
    parts = [part for message in messages for part in parts_of(message)]
    texts = [part.text for part in parts if isinstance(part, TextPart)]
    if sum(map(len, texts)) > limits.text_characters:
        raise Refused(413, f"the texts have more than {limits.text_characters} characters: send less")
    if any(0xD800 <= ord(character) < 0xE000 for text in texts for character in text):
        raise Refused(422, "a text holds half of a surrogate pair: send valid Unicode")
    if len(parts) - len(texts) > limits.images:
        raise Refused(422, f"{len(parts) - len(texts)} images: send at most {limits.images}")
    return tuple((message, tuple(opened(part, message, limits) for part in parts_of(message))) for message in messages)


def parts_of(message: ChatMessage) -> Sequence[Part]:
    return [TextPart("text", message.content)] if isinstance(message.content, str) else message.content


def opened(part: Part, message: ChatMessage, limits: Limits) -> str | Pillow.Image:
    if isinstance(part, TextPart):
        return part.text
    if message.role != "user":
        raise Refused(422, f"an image in a {message.role} message: images belong in user messages")
    source = part.image if isinstance(part, ImagePart) else part.image_url.url
    return open_image(image_bytes(source, limits), limits)


def decoded_bytes(messages: Opened) -> int:
    """What the images will take once decoded."""
    images = [part for _, parts in messages for part in parts if not isinstance(part, str)]
    return sum(3 * image.width * image.height for image in images)


def decode_messages(messages: Opened) -> tuple[Message, ...]:
    return tuple(
        Message(message.role, tuple(part if isinstance(part, str) else decode_image(part) for part in parts))
        for message, parts in messages
    )


def make_prompt(request: GenerateRequest | ChatRequest, messages: tuple[Message, ...]) -> Prompt:
    """The prompt of decoded messages under the request's settings."""
    chosen = request.top_p if isinstance(request, ChatRequest) else None
    return Prompt(
        messages=messages,
        max_tokens=token_limit(request),
        temperature=request.temperature or 0.0,
        top_p=TOP_P if chosen is None else chosen,
        seed=secrets.randbits(62) if request.seed is None else request.seed,
    )


def token_limit(request: GenerateRequest | ChatRequest) -> int:
    """How many tokens the reply may have."""
    if isinstance(request, GenerateRequest):
        return request.max_tokens
    return request.max_completion_tokens or request.max_tokens or MAX_TOKENS
