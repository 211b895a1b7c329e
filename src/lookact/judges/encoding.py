"""Texts and images as OpenAI's messages hold them."""

from __future__ import annotations

import base64
import io
from collections.abc import Sequence
from typing import Any

from PIL import Image as Pillow

from lookact.types import Image

Content = Sequence[str | Image]
"""Texts and images of one user message, in their order."""


def encode_part(part: str | Image) -> dict[str, Any]:
    """A text or an image as OpenAI's messages hold them."""
    if isinstance(part, str):
        return {"type": "text", "text": part}
    return {"type": "image_url", "image_url": {"url": f"data:image/png;base64,{encode_png(part)}"}}


def encode_png(image: Image) -> str:
    """An image (h, w, 3) as a PNG file in base64."""
    file = io.BytesIO()
    # lossless whatever the level; the lowest costs least time
    Pillow.fromarray(image).save(file, "PNG", compress_level=1)
    return base64.b64encode(file.getvalue()).decode()
