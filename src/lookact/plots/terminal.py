"""A picture in the terminal: two pixels a character, the upper one its ink and the lower one its ground."""

from __future__ import annotations

import numpy as np
from PIL import Image as PILImage
from rich.text import Text

from lookact.types import Image

UPPER_HALF = "▀"


def draw_blocks(picture: Image, *, columns: int) -> Text:
    """A picture (h, w, 3) as lines of `columns` characters; a character is about twice as high as it is wide."""
    height, width = picture.shape[:2]
    rows = max(1, round(columns * height / width / 2))
    shrunk = PILImage.fromarray(picture).resize((columns, 2 * rows), PILImage.Resampling.BOX)
    pixels = np.asarray(shrunk).reshape(rows, 2, columns, 3)
    drawn = Text(no_wrap=True)
    for row, (uppers, lowers) in enumerate(pixels):
        drawn.append("\n" if row else "")
        for upper, lower in zip(uppers.tolist(), lowers.tolist()):
            drawn.append(UPPER_HALF, style=f"{_ink(upper)} on {_ink(lower)}")
    return drawn


def _ink(pixel: list[int]) -> str:
    return f"rgb({','.join(map(str, pixel))})"
