"""Images out of requests: sizes are read from the header before a single pixel is decoded."""

from __future__ import annotations

import base64
import binascii
import io
import re
import warnings

import numpy as np
from PIL import Image as Pillow

from lookact.judges.server.limits import Limits, Refused
from lookact.types import Image

FORMATS = ("PNG", "JPEG", "WEBP")
DATA_URL = re.compile(r"data:image/[\w.+-]+;base64,", re.IGNORECASE)
LONGEST_SIDES = 200
"""Qwen's processor refuses an image whose sides differ by more than this factor."""


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
