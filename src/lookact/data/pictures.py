"""Pictures as files in memory: what a judge is shown is larger than what a reward reads."""

from __future__ import annotations

import io

import numpy as np
from PIL import Image as Pillow

from lookact.types import Image

QUALITY = 92


def encode_jpeg(image: Image) -> bytes:
    """An image (h, w, 3) as a JPEG file."""
    file = io.BytesIO()
    Pillow.fromarray(image).save(file, "JPEG", quality=QUALITY, subsampling=0)
    return file.getvalue()


def decode_picture(file: bytes) -> Image:
    """The pixels (h, w, 3) of a JPEG or PNG file."""
    return np.array(Pillow.open(io.BytesIO(file)).convert("RGB"), dtype=np.uint8)


def resize(image: Image, width: int, height: int) -> Image:
    """The image at another size, each pixel the mean of those it stands for."""
    return np.array(Pillow.fromarray(image).resize((width, height), Pillow.Resampling.BOX), dtype=np.uint8)
