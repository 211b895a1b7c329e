"""Bathroom fixtures out of parts; each fills width w, depth d, height h and faces +y."""

from __future__ import annotations

from lookact.envs.rooms.parts import Color, Part, bowl, box, shaded, tube

CHROME: Color = (196.0, 202.0, 210.0)
WATER: Color = (120.0, 196.0, 226.0)


def sink(w: float, d: float, h: float, main: Color, second: Color) -> list[Part]:
    """A coloured vanity with two doors, a white basin full of water and an arched tap."""
    x, y, top = w / 2, d / 2, h - 0.2
    front = y - 0.05
    rim = 0.06
    return [
        box(-x + 0.02, -y, 0, x - 0.02, front, top - 0.12, main),
        box(-0.9 * x, front, 0.08, -0.012, front + 0.015, top - 0.15, shaded(main, 1.25)),
        box(0.012, front, 0.08, 0.9 * x, front + 0.015, top - 0.15, shaded(main, 1.25)),
        box(-0.06, front + 0.015, 0.55 * top, -0.035, front + 0.04, 0.7 * top, CHROME),
        box(0.035, front + 0.015, 0.55 * top, 0.06, front + 0.04, 0.7 * top, CHROME),
        box(-x, -y, top - 0.12, x, y, top - 0.05, second),
        box(-x, -y, top - 0.05, x, -y + 2 * rim, top, second),
        box(-x, y - rim, top - 0.05, x, y, top, second),
        box(-x, -y + 2 * rim, top - 0.05, -x + rim, y - rim, top, second),
        box(x - rim, -y + 2 * rim, top - 0.05, x, y - rim, top, second),
        box(-x + rim, -y + 2 * rim, top - 0.05, x - rim, y - rim, top - 0.035, WATER),
        box(-0.02, -y + 0.03, top, 0.02, -y + 0.07, h, CHROME),
        box(-0.02, -y + 0.07, h - 0.04, 0.02, -y + 0.24, h, CHROME),
        box(-0.015, -y + 0.21, h - 0.08, 0.015, -y + 0.24, h - 0.04, CHROME),
    ]


def toilet(w: float, d: float, h: float, main: Color, second: Color) -> list[Part]:
    """A bowl with a seat and water in it, a raised lid, a tank with its button."""
    x, y, seat = w / 2, d / 2, 0.42
    back = -y + 0.2
    return [
        bowl(-0.85 * x, back - 0.04, 0.0, 0.85 * x, y - 0.02, seat - 0.04, main),
        box(-0.45 * x, -y + 0.05, 0, 0.45 * x, back + 0.14, seat - 0.1, shaded(main, 0.94)),
        tube(-0.95 * x, back - 0.02, seat - 0.04, 0.95 * x, y, seat, second),
        tube(-0.6 * x, back + 0.08, seat, 0.6 * x, y - 0.09, seat + 0.004, (96, 142, 170)),
        box(-0.85 * x, back, seat, 0.85 * x, back + 0.03, h - 0.06, shaded(second, 0.96)),
        box(-x, -y, 0.34, x, back, h - 0.04, main),
        box(-x, -y, h - 0.04, x, back + 0.005, h - 0.012, shaded(main, 0.9)),
        tube(-0.05, -y + 0.05, h - 0.012, 0.05, -y + 0.15, h, CHROME),
    ]


def bathtub(w: float, d: float, h: float, main: Color, second: Color) -> list[Part]:
    """A white rim round blue water, a coloured apron, a tap at one end."""
    x, y, rim = w / 2, d / 2, 0.08
    top = h - 0.14
    return [
        box(-x, -y, 0, x, -y + rim, top, main),
        box(-x, y - rim, 0.06, x, y - 0.02, top, second),
        box(-x, y - rim, top - 0.06, x, y, top, main),
        box(-x, y - rim, 0, x, y - 0.03, 0.06, shaded(second, 0.7)),
        box(-x, -y + rim, 0, -x + 2 * rim, y - rim, top, main),
        box(x - rim, -y + rim, 0, x, y - rim, top, main),
        box(-x + 2 * rim, -y + rim, 0, x - rim, y - rim, 0.68 * top, WATER),
        box(-x + 0.05, -0.02, top, -x + 0.09, 0.02, h, CHROME),
        box(-x + 0.09, -0.02, h - 0.035, -x + 0.26, 0.02, h, CHROME),
        box(-x + 0.04, -0.14, top, -x + 0.1, -0.08, top + 0.06, CHROME),
        box(-x + 0.04, 0.08, top, -x + 0.1, 0.14, top + 0.06, CHROME),
        box(x - 0.5, y - rim - 0.05, top, x - 0.2, y - 0.01, top + 0.012, shaded(second, 1.15)),
    ]
