"""From a request's messages to a prompt for the model: counts and sizes are checked before a pixel is decoded."""

from __future__ import annotations

import base64
import binascii
import io
import re
import secrets
import warnings
from collections.abc import Sequence
from dataclasses import replace
from typing import Literal

import numpy as np
from PIL import Image as Pillow

from lookact.judges.server.batching import Message, Prompt
from lookact.judges.server.schema import ChatMessage, ChatRequest, GenerateRequest, ImagePart, Part, TextPart
from lookact.seeding import derive
from lookact.serving.limits import Limits, Refused
from lookact.types import Image

FORMATS = ("PNG", "JPEG", "WEBP")
DATA_URL = re.compile(r"data:image/[\w.+-]+;base64,", re.IGNORECASE)
LONGEST_SIDES = 200
"""Qwen's processor refuses an image whose sides differ by more than this factor."""
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
    found = tuple((message, tuple(opened(part, message, limits) for part in parts_of(message))) for message in messages)
    if decoded_bytes(found)[0] > 3 * limits.request_pixels:
        raise Refused(413, f"the images have more than {limits.request_pixels} pixels together: send smaller ones")
    return found


def parts_of(message: ChatMessage) -> Sequence[Part]:
    return [TextPart("text", message.content)] if isinstance(message.content, str) else message.content


def opened(part: Part, message: ChatMessage, limits: Limits) -> str | Pillow.Image:
    if isinstance(part, TextPart):
        return part.text
    if message.role != "user":
        raise Refused(422, f"an image in a {message.role} message: images belong in user messages")
    source = part.image if isinstance(part, ImagePart) else part.image_url.url
    return open_image(image_bytes(source, limits), limits)


def decoded_bytes(messages: Opened) -> tuple[int, int]:
    """Bytes that images take until they are answered (RGB pixels), and besides while they are decoded one by one.

    Pillow holds four bytes a pixel of what it decodes and four more of what it converts, beside the file itself.
    """
    pixels = [part.width * part.height for _, parts in messages for part in parts if not isinstance(part, str)]
    return 3 * sum(pixels), 8 * max(pixels, default=0)


def decode_messages(messages: Opened) -> tuple[Message, ...]:
    return tuple(
        Message(role_of(message), tuple(part if isinstance(part, str) else decode_image(part) for part in parts))
        for message, parts in messages
    )


def role_of(message: ChatMessage) -> Literal["system", "user", "assistant"]:
    """A developer's message is what was a system message before."""
    return "system" if message.role == "developer" else message.role


def make_prompts(request: GenerateRequest | ChatRequest, messages: tuple[Message, ...]) -> list[Prompt]:
    """The prompt of decoded messages under the request's settings, once for each reply."""
    seed = secrets.randbits(62) if request.seed is None else request.seed
    prompt = Prompt(messages, token_limit(request), request.temperature or 0.0, TOP_P, seed)
    if isinstance(request, GenerateRequest):
        return [prompt]
    if request.top_logprobs and not request.logprobs:
        raise Refused(422, "top_logprobs without logprobs: set logprobs to true")
    if request.stream and (request.logprobs or (request.n or 1) > 1):
        raise Refused(422, "a streamed reply comes alone and without logprobs: leave out stream, or n and logprobs")
    if request.stream_options and not request.stream:
        raise Refused(422, "stream_options without stream: set stream to true")
    prompt = replace(
        prompt,
        top_p=TOP_P if request.top_p is None else request.top_p,
        top_logprobs=(request.top_logprobs or 0) if request.logprobs else None,
        stop=(request.stop,) if isinstance(request.stop, str) else tuple(request.stop or ()),
        streamed=bool(request.stream),
    )
    others = range(1, request.n or 1)
    return [prompt, *(replace(prompt, seed=derive(seed, "reply", number)) for number in others)]


def token_limit(request: GenerateRequest | ChatRequest) -> int:
    """How many tokens the reply may have."""
    if isinstance(request, GenerateRequest):
        return request.max_tokens
    return request.max_completion_tokens or request.max_tokens or MAX_TOKENS


def image_bytes(source: str, limits: Limits) -> bytes:
    """The file inside a data URL or bare base64. Nothing is fetched: a server that follows links can be misused."""
    prefix = DATA_URL.match(source)
    encoded = source[prefix.end() :] if prefix else source
    if prefix is None and ":" in source[:32]:
        raise Refused(422, "an image must be inline, as data:image/png;base64,...: this server fetches no links")
    if len(encoded) * 3 // 4 > limits.image_bytes + 3:
        raise Refused(413, f"an image has more than {limits.image_bytes} bytes: send a smaller one")
    try:
        return base64.b64decode(encoded.replace("\n", ""), validate=True)
    except (binascii.Error, ValueError):
        raise Refused(422, "an image is not valid base64: encode the bytes of a PNG, JPEG or WebP file") from None


def open_image(data: bytes, limits: Limits) -> Pillow.Image:
    """The image with its header read, its size checked and its pixels not yet decoded."""
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", Pillow.DecompressionBombWarning)
            image = Pillow.open(io.BytesIO(data), formats=FORMATS)
    except Pillow.DecompressionBombError:
        raise Refused(413, f"an image has more than {limits.image_pixels} pixels: send a smaller one") from None
    except Exception:
        # a file made to do harm may fail in any way
        raise Refused(422, f"an image could not be read: send {', '.join(FORMATS)}") from None
    width, height = image.size
    if width * height > limits.image_pixels:
        raise Refused(
            413, f"an image of {width}x{height} has more than {limits.image_pixels} pixels: send a smaller one"
        )
    if max(width, height) > LONGEST_SIDES * min(width, height):
        raise Refused(422, f"an image of {width}x{height} is too narrow: sides may differ {LONGEST_SIDES} times")
    return image


def decode_image(image: Pillow.Image) -> Image:
    """RGB pixels (h, w, 3); a torn file is refused."""
    try:
        return np.array(image.convert("RGB"), dtype=np.uint8)
    except Exception as error:
        # a file made to do harm may fail in any way
        raise Refused(422, f"an image is torn: {type(error).__name__} while decoding it") from None
    finally:
        # else Pillow's own pixels would stay as long as the request
        image.close()
