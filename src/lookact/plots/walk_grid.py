"""The same rooms walked by several policies: a row a room from above, a column a policy."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from PIL import Image as PILImage
from PIL import ImageDraw

from lookact.errors import DataError
from lookact.plots.style import BAD, GOOD, GREY, INK, PALE, load_font
from lookact.types import Image

TILE, GAP, MARGIN = 280, 18, 20
HEADER, TITLE, CAPTION, NOTE = 34, 24, 24, 26
"""Pixels above all columns, above a row, under a tile and under all rows."""


@dataclass(frozen=True)
class Walk:
    """A room from above with the way that was taken, and how it ended in a few words."""

    picture: Image
    caption: str
    reached: bool


def draw_walks(names: Sequence[str], rooms: Sequence[tuple[str, Sequence[Walk]]], *, note: str) -> Image:
    """A (h, w, 3) sheet: the policies' names on top, for each room its title and one walk a policy, a note below."""
    if not rooms or any(len(walks) != len(names) for _, walks in rooms):
        raise DataError(f"{len(names)} policies need one walk each in every one of {len(rooms)} rooms")
    width = 2 * MARGIN + len(names) * TILE + (len(names) - 1) * GAP
    height = 2 * MARGIN + HEADER + len(rooms) * (TITLE + TILE + CAPTION) + (len(rooms) - 1) * GAP + NOTE
    sheet = PILImage.new("RGB", (width, height), "white")
    draw = ImageDraw.Draw(sheet)
    lefts = [MARGIN + column * (TILE + GAP) for column in range(len(names))]
    for left, name in zip(lefts, names):
        draw.text((left, MARGIN), name, font=load_font(19, bold=True), fill=INK)
    for row, (title, walks) in enumerate(rooms):
        top = MARGIN + HEADER + row * (TITLE + TILE + CAPTION + GAP)
        draw.text((MARGIN, top), title, font=load_font(13), fill=GREY)
        for left, walk in zip(lefts, walks):
            _draw_walk(sheet, draw, walk, left, top + TITLE)
    draw.text((MARGIN, height - MARGIN), note, font=load_font(11), fill=GREY, anchor="ls")
    return np.asarray(sheet)


def _draw_walk(sheet: PILImage.Image, draw: ImageDraw.ImageDraw, walk: Walk, left: int, top: int) -> None:
    tile = PILImage.fromarray(walk.picture).resize((TILE, TILE), PILImage.Resampling.LANCZOS)
    sheet.paste(tile, (left, top))
    draw.rectangle((left, top, left + TILE - 1, top + TILE - 1), outline=PALE)
    text = f"{'✓' if walk.reached else '✗'} {walk.caption}"
    draw.text((left, top + TILE + 5), text, font=load_font(13, bold=True), fill=GOOD if walk.reached else BAD)
