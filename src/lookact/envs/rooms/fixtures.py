"""Kitchen, laundry and bathroom fixtures out of parts; each fills width w, depth d, height h and faces +y."""

from __future__ import annotations

from lookact.envs.rooms.parts import Color, Part, bowl, box, disc, shaded, tube

BLACK: Color = (24.0, 25.0, 28.0)
CHROME: Color = (200.0, 205.0, 212.0)
AMBER: Color = (236.0, 150.0, 48.0)
TAP: Color = (196.0, 202.0, 210.0)
WATER: Color = (120.0, 196.0, 226.0)


def refrigerator(w: float, d: float, h: float, main: Color, second: Color) -> list[Part]:
    """A freezer door over a larger one, two long handles, a dark foot."""
    x, y, seam = w / 2, d / 2, 0.66 * h
    front = y - 0.04
    return [
        box(-x, -y, 0.06, x, front - 0.06, h, shaded(main, 0.8)),
        box(-x + 0.02, -y + 0.02, 0, x - 0.02, front - 0.08, 0.06, second),
        box(-x, front - 0.06, 0.08, x, front, seam - 0.012, main),
        box(-x, front - 0.06, seam + 0.012, x, front, h, shaded(main, 1.05)),
        box(x - 0.11, front, 0.4 * h, x - 0.07, y, seam - 0.06, second),
        box(x - 0.11, front, seam + 0.06, x - 0.07, y, h - 0.1, second),
        box(-0.1, front, 0.8 * h, 0.04, front + 0.008, 0.88 * h, shaded(second, 1.6)),
    ]


def stove(w: float, d: float, h: float, main: Color, second: Color) -> list[Part]:
    """Four glowing burners on a black top, knobs, an oven window and a splash-back."""
    x, y, top = w / 2, d / 2, h - 0.14
    front = y - 0.04
    glow = (214.0, 62.0, 36.0)
    parts = [
        box(-x, -y, 0.05, x, front, top - 0.04, main),
        box(-x + 0.03, -y, 0, x - 0.03, front - 0.05, 0.05, BLACK),
        box(-x, -y, top - 0.04, x, y, top, BLACK),
        box(-x, -y, top, x, -y + 0.05, h, shaded(main, 1.2)),
        box(-0.6 * x, -y + 0.05, top + 0.05, 0.6 * x, -y + 0.055, h - 0.03, second),
        box(-0.75 * x, front, 0.25 * h, 0.75 * x, front + 0.01, 0.52 * h, BLACK),
        box(-0.8 * x, front, 0.57 * h, 0.8 * x, y, 0.6 * h, second),
    ]
    for side in (-1, 1):
        for middle, radius in ((-0.3 * d, 0.16 * w), (0.17 * d, 0.19 * w)):
            centre = side * 0.48 * x
            middle += 0.05
            parts.append(
                tube(centre - radius, middle - radius, top, centre + radius, middle + radius, top + 0.012, glow)
            )
    for i in range(4):
        knob = (-0.72 + 0.48 * i) * x
        parts.append(box(knob - 0.025, front, 0.66 * h, knob + 0.025, front + 0.03, 0.66 * h + 0.05, second))
    return parts


def washer(w: float, d: float, h: float, main: Color, second: Color) -> list[Part]:
    """A round porthole, a control strip with a dial, a drawer."""
    x, y = w / 2, d / 2
    front, radius, middle = y - 0.05, 0.36 * w, 0.44 * h
    return [
        box(-x, -y, 0.04, x, front, h, main),
        box(-x + 0.04, -y + 0.04, 0, x - 0.04, front - 0.04, 0.04, BLACK),
        disc(-radius, front, middle - radius, radius, y - 0.02, middle + radius, CHROME),
        disc(-0.78 * radius, y - 0.02, middle - 0.78 * radius, 0.78 * radius, y, middle + 0.78 * radius, second),
        disc(
            -0.5 * radius, y - 0.02, middle - 0.5 * radius, 0.5 * radius, y - 0.001, middle + 0.5 * radius, (30, 52, 88)
        ),
        box(-x, front, 0.84 * h, x, front + 0.012, h - 0.01, shaded(second, 0.55)),
        disc(-0.05, front, 0.86 * h, 0.05, front + 0.04, 0.86 * h + 0.1, CHROME),
        box(-0.9 * x, front, 0.87 * h, -0.4 * x, front + 0.02, 0.96 * h, main),
        box(0.35 * x, front, 0.88 * h, 0.85 * x, front + 0.016, 0.95 * h, (120, 220, 160)),
    ]


def oven(w: float, d: float, h: float, main: Color, second: Color) -> list[Part]:
    """A wall oven: two amber windows one over the other, bars to open them, a lit clock."""
    x, y = w / 2, d / 2
    front = y - 0.05
    parts = [
        box(-x, -y, 0.05, x, front, h, main),
        box(-x + 0.03, -y + 0.03, 0, x - 0.03, front - 0.04, 0.05, BLACK),
        box(-0.94 * x, front, 0.88 * h, 0.94 * x, front + 0.012, 0.97 * h, BLACK),
        box(-0.25 * x, front + 0.012, 0.9 * h, 0.25 * x, front + 0.018, 0.95 * h, (90, 230, 190)),
        box(-0.9 * x, front, 0.05, 0.9 * x, front + 0.012, 0.12 * h, shaded(main, 0.7)),
    ]
    for low, high in ((0.15, 0.48), (0.52, 0.85)):
        parts += [
            box(-0.94 * x, front, low * h, 0.94 * x, front + 0.015, high * h, second),
            box(-0.74 * x, front + 0.015, (low + 0.04) * h, 0.74 * x, front + 0.02, (high - 0.12) * h, BLACK),
            box(-0.62 * x, front + 0.02, (low + 0.07) * h, 0.62 * x, front + 0.024, (high - 0.16) * h, AMBER),
            box(-0.8 * x, front + 0.015, (high - 0.07) * h, 0.8 * x, y, (high - 0.045) * h, CHROME),
        ]
    return parts


def dishwasher(w: float, d: float, h: float, main: Color, second: Color) -> list[Part]:
    """A plain door with one long bar, a control strip with lights, a pale worktop."""
    x, y = w / 2, d / 2
    front = y - 0.05
    parts = [
        box(-x, -y, 0.1, x, front - 0.02, h - 0.04, shaded(main, 0.8)),
        box(-x + 0.02, -y + 0.02, 0, x - 0.02, front - 0.07, 0.1, BLACK),
        box(-x, -y, h - 0.04, x, front + 0.02, h, (236, 232, 224)),
        box(-x, front - 0.02, 0.11, x, front, 0.76 * h, main),
        box(-x, front - 0.02, 0.77 * h, x, front, h - 0.05, shaded(second, 0.6)),
        box(-0.85 * x, front, 0.68 * h, 0.85 * x, y, 0.72 * h, CHROME),
    ]
    for i in range(4):
        light = (0.2 + 0.17 * i) * x
        parts.append(box(light, front, 0.82 * h, light + 0.02, front + 0.01, 0.86 * h, (250, 240, 140)))
    return parts


def sink(w: float, d: float, h: float, main: Color, second: Color) -> list[Part]:
    """A coloured vanity with two doors, a white basin full of water and an arched tap."""
    x, y, top = w / 2, d / 2, h - 0.2
    front = y - 0.05
    rim = 0.06
    return [
        box(-x + 0.02, -y, 0, x - 0.02, front, top - 0.12, main),
        box(-0.9 * x, front, 0.08, -0.012, front + 0.015, top - 0.15, shaded(main, 1.25)),
        box(0.012, front, 0.08, 0.9 * x, front + 0.015, top - 0.15, shaded(main, 1.25)),
        box(-0.06, front + 0.015, 0.55 * top, -0.035, front + 0.04, 0.7 * top, TAP),
        box(0.035, front + 0.015, 0.55 * top, 0.06, front + 0.04, 0.7 * top, TAP),
        box(-x, -y, top - 0.12, x, y, top - 0.05, second),
        box(-x, -y, top - 0.05, x, -y + 2 * rim, top, second),
        box(-x, y - rim, top - 0.05, x, y, top, second),
        box(-x, -y + 2 * rim, top - 0.05, -x + rim, y - rim, top, second),
        box(x - rim, -y + 2 * rim, top - 0.05, x, y - rim, top, second),
        box(-x + rim, -y + 2 * rim, top - 0.05, x - rim, y - rim, top - 0.035, WATER),
        box(-0.02, -y + 0.03, top, 0.02, -y + 0.07, h, TAP),
        box(-0.02, -y + 0.07, h - 0.04, 0.02, -y + 0.24, h, TAP),
        box(-0.015, -y + 0.21, h - 0.08, 0.015, -y + 0.24, h - 0.04, TAP),
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
        tube(-0.05, -y + 0.05, h - 0.012, 0.05, -y + 0.15, h, TAP),
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
        box(-x + 0.05, -0.02, top, -x + 0.09, 0.02, h, TAP),
        box(-x + 0.09, -0.02, h - 0.035, -x + 0.26, 0.02, h, TAP),
        box(-x + 0.04, -0.14, top, -x + 0.1, -0.08, top + 0.06, TAP),
        box(-x + 0.04, 0.08, top, -x + 0.1, 0.14, top + 0.06, TAP),
        box(x - 0.5, y - rim - 0.05, top, x - 0.2, y - 0.01, top + 0.012, shaded(second, 1.15)),
    ]
