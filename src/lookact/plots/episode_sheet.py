"""One episode on one sheet: the path on the room's map, then turn by turn what was seen, done and said."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from PIL import Image as PILImage
from PIL import ImageDraw, ImageFont

from lookact.errors import DataError, ParseError
from lookact.plots.style import BAD, GOOD, GREY, INK, PALE, load_font
from lookact.text.actions import ANSWER_KEY, MOVE_KEYS, parse_move_or_answer, reasoning_of
from lookact.types import Image

VIEW = 200
"""About this many pixels a view is wide."""
MARGIN, GAP, HEADER = 20, 14, 42
HEADLINE, LINE, LINES = 27, 16, 3
"""Pixels the action and a line of words are high, and how many lines are shown."""
ROWS, COLUMNS = 2, 6
"""Turns stand in this many rows, in more only where a row would grow longer than this many columns."""


@dataclass(frozen=True)
class Cell:
    """One view and what stands on and under it."""

    picture: PILImage.Image
    number: str
    headline: str
    colour: str
    words: list[str]


def draw_episode(
    views: Sequence[Image],
    captions: Sequence[str],
    map_image: Image | None,
    *,
    title: str,
    outcome: bool,
    outcome_words: tuple[str, str] = ("reached", "not reached"),
) -> Image:
    """A (h, w, 3) sheet. Captions are the replies, one a view; a view more than that is what was seen at the end."""
    if not views or len(views) - len(captions) not in (0, 1):
        raise DataError(f"{len(views)} views and {len(captions)} replies: give one reply a view, or one view more")
    word, colour = (outcome_words[0], GOOD) if outcome else (outcome_words[1], BAD)
    cells = [_turn_cell(view, str(number), reply) for number, (view, reply) in enumerate(zip(views, captions), 1)]
    cells += [Cell(_framed(enlarge(view)), "end", word, colour, []) for view in views[len(captions) :]]
    lines = max(len(cell.words) for cell in cells)
    drawn = [_draw_cell(cell, lines) for cell in cells]
    parts = [_arrange(drawn)]
    if map_image is not None:
        parts.insert(0, _framed(_fit(map_image, max(parts[0].height, ROWS * drawn[0].height + (ROWS - 1) * GAP))))
    badge = _draw_badge(f"{'✓' if outcome else '✗'} {word}", colour)
    header = _draw_header(title, badge, max(sum(part.width for part in parts) + GAP * (len(parts) - 1), 3 * VIEW))
    return np.asarray(_padded(_column([header, _row(parts)])))


def stack_sheets(sheets: Sequence[Image]) -> Image:
    """Several sheets (h, w, 3) one below the other, with a line between them."""
    if not sheets:
        raise DataError("no sheets to stack: draw at least one episode")
    width = max(sheet.shape[1] for sheet in sheets)
    stack = _blank(width, sum(sheet.shape[0] for sheet in sheets))
    y = 0
    for sheet in sheets:
        stack.paste(PILImage.fromarray(sheet), (0, y))
        if y:
            ImageDraw.Draw(stack).line((MARGIN, y, width - MARGIN, y), fill=PALE)
        y += sheet.shape[0]
    return np.asarray(stack)


def describe_action(reply: str) -> str:
    """A reply's action in signs, such as `⟲ 30°  ↑ 0.75 m`; positive rotations turn left. Empty if there is none."""
    try:
        action = parse_move_or_answer(reply)
    except ParseError:
        return ""
    if ANSWER_KEY in action:
        return f"answers {action[ANSWER_KEY]}"
    rotation, forward = (action[key] for key in MOVE_KEYS)
    turn = f"{'⟲' if rotation > 0 else '⟳'} {abs(rotation):g}°" if rotation else ""
    walk = f"{'↑' if forward > 0 else '↓'} {abs(forward):g} m" if forward else ""
    return "  ".join(part for part in (turn, walk) if part) or "stays"


def wrap(text: str, font: ImageFont.FreeTypeFont, *, width: int, lines: int) -> list[str]:
    """Words in lines of at most `width` pixels; what does not fit into `lines` of them ends in an ellipsis."""
    wrapped = [""]
    for word in text.split():
        longer = f"{wrapped[-1]} {word}".strip()
        if font.getlength(longer) <= width or not wrapped[-1]:
            wrapped[-1] = longer
        else:
            wrapped.append(word)
    cut = wrapped[:lines]
    if len(wrapped) > lines:
        cut[-1] += " …"
    return [_shortened(line, font, width) for line in cut]


def enlarge(view: Image) -> PILImage.Image:
    """A small view made about `VIEW` wide by whole numbers, so that pixels stay square; a large one shrunk to it."""
    picture = PILImage.fromarray(view)
    factor = round(VIEW / picture.width)
    if factor >= 1:
        return picture.resize((picture.width * factor, picture.height * factor), PILImage.Resampling.NEAREST)
    return picture.resize((VIEW, round(picture.height * VIEW / picture.width)), PILImage.Resampling.LANCZOS)


def _turn_cell(view: Image, number: str, reply: str) -> Cell:
    picture = _framed(enlarge(view))
    words = wrap(reasoning_of(reply), load_font(12), width=picture.width, lines=LINES)
    if action := describe_action(reply):
        return Cell(picture, number, action, INK, words)
    return Cell(picture, number, "no action", BAD, words)


def _draw_cell(cell: Cell, lines: int) -> PILImage.Image:
    """The view with its turn's number, the action under it, and room for `lines` of words under that."""
    width, height = cell.picture.size
    drawn = _blank(width, height + HEADLINE + LINE * lines)
    drawn.paste(cell.picture)
    draw = ImageDraw.Draw(drawn, "RGBA")
    bold, plain = load_font(13, bold=True), load_font(12)
    draw.rounded_rectangle((0, 0, bold.getlength(cell.number) + 16, 25), radius=4, fill=(20, 20, 28, 190))
    draw.text((8, 5), cell.number, font=bold, fill="white")
    draw.text((1, height + 5), _shortened(cell.headline, bold, width), font=bold, fill=cell.colour)
    for row, line in enumerate(cell.words):
        draw.text((1, height + HEADLINE + row * LINE), line, font=plain, fill=GREY)
    return drawn


def _draw_badge(text: str, colour: str) -> PILImage.Image:
    # drawn large and shrunk, since PIL draws round corners without smoothing
    font = load_font(60, bold=True)
    badge = _blank(round(font.getlength(text)) + 96, 112)
    draw = ImageDraw.Draw(badge)
    draw.rounded_rectangle((0, 0, badge.width - 1, badge.height - 1), radius=56, fill=colour)
    draw.text((badge.width / 2, badge.height / 2), text, font=font, fill="white", anchor="mm")
    return badge.reduce(4)


def _draw_header(title: str, badge: PILImage.Image, width: int) -> PILImage.Image:
    """The title, and the outcome after it."""
    font = load_font(19, bold=True)
    header = _blank(width, HEADER - GAP)
    title = _shortened(title, font, width - badge.width - GAP)
    ImageDraw.Draw(header).text((0, header.height / 2), title, font=font, fill=INK, anchor="lm")
    header.paste(badge, (round(font.getlength(title)) + GAP if title else 0, 0))
    return header


def _arrange(cells: Sequence[PILImage.Image]) -> PILImage.Image:
    """Cells in reading order."""
    rows = max(min(ROWS, len(cells)), -(-len(cells) // COLUMNS))
    columns = -(-len(cells) // rows)
    return _column([_row(cells[start : start + columns]) for start in range(0, len(cells), columns)])


def _row(parts: Sequence[PILImage.Image]) -> PILImage.Image:
    joined = _blank(sum(part.width for part in parts) + GAP * (len(parts) - 1), max(part.height for part in parts))
    x = 0
    for part in parts:
        joined.paste(part, (x, 0))
        x += part.width + GAP
    return joined


def _column(parts: Sequence[PILImage.Image]) -> PILImage.Image:
    joined = _blank(max(part.width for part in parts), sum(part.height for part in parts) + GAP * (len(parts) - 1))
    y = 0
    for part in parts:
        joined.paste(part, (0, y))
        y += part.height + GAP
    return joined


def _fit(picture: Image, height: int) -> PILImage.Image:
    image = PILImage.fromarray(picture)
    return image.resize((round(image.width * height / image.height), height), PILImage.Resampling.LANCZOS)


def _framed(picture: PILImage.Image) -> PILImage.Image:
    ImageDraw.Draw(picture).rectangle((0, 0, picture.width - 1, picture.height - 1), outline=PALE)
    return picture


def _padded(picture: PILImage.Image) -> PILImage.Image:
    sheet = _blank(picture.width + 2 * MARGIN, picture.height + 2 * MARGIN)
    sheet.paste(picture, (MARGIN, MARGIN))
    return sheet


def _shortened(text: str, font: ImageFont.FreeTypeFont, width: int) -> str:
    """The text, cut with an ellipsis where it is wider than `width` pixels."""
    if font.getlength(text) <= width:
        return text
    while text and font.getlength(f"{text}…") > width:
        text = text[:-1].rstrip(" …")
    return f"{text}…"


def _blank(width: int, height: int) -> PILImage.Image:
    return PILImage.new("RGB", (width, height), "white")
