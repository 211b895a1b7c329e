"""Observations as user messages: images first, in their order, then the text."""

from __future__ import annotations

import base64
import io
from typing import Any

from PIL import Image as Pillow

from lookact.types import Image, Observation


def openai_message(seen: Observation) -> dict[str, Any]:
    """With images as PNG in data URLs, which keeps every pixel."""
    urls = [f"data:image/png;base64,{base64.b64encode(png(image)).decode()}" for image in seen.images.values()]
    parts: list[dict[str, Any]] = [{"type": "image_url", "image_url": {"url": url}} for url in urls]
    return {"role": "user", "content": [*parts, {"type": "text", "text": seen.text}]}


def content_blocks(seen: Observation) -> list[dict[str, Any]]:
    """With images of Pillow's, as transformers' processors take them."""
    parts: list[dict[str, Any]] = [
        {"type": "image", "image": Pillow.fromarray(image)} for image in seen.images.values()
    ]
    return [*parts, {"type": "text", "text": seen.text}]


def png(image: Image) -> bytes:
    file = io.BytesIO()
    Pillow.fromarray(image).save(file, "PNG", compress_level=1)
    return file.getvalue()
